"""Frames of sound on disk, memory-mapped: computed once, read at every epoch.

The folder is that of `shards.py` with `frames-00000.bin` in place of tokens: a row is a frame of
`features` numbers, which the header counts too. float16 halves the disk and keeps three digits,
more than the logarithms of a filterbank need.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.batch.ragged import Numbers
from harken.batch.shards import Shards, write_rows

SHARD_NUMBERS = 1 << 25  # 128 MiB of float32: few files, and none too large to copy


def write_frames(
    folder: Path,
    documents: Iterable[Float[np.ndarray, "_frames F"]],
    features: int,
    *,
    number_type: Literal["float32", "float16"] = "float32",
    shard_numbers: int = SHARD_NUMBERS,
) -> None:
    """Stream utterances into shards, in constant memory."""

    def checked(document: np.ndarray) -> np.ndarray:
        assert document.shape[1:] == (features,), "an utterance of other features than the rest"
        return document.astype(number_type)

    header = {"type": number_type, "features": features}
    most = max(1, shard_numbers // features)
    write_rows(folder, "frame", map(checked, documents), header, most=most)


class FrameShards(Shards):
    """Utterances of frames."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "frame")

    @property
    def features(self) -> int:
        return int(self.header["features"])

    def take(self, documents: Numbers) -> tuple[Float[Tensor, "B T F"], Bool[Tensor, "B T"]]:
        """(frames, where a frame is) of these utterances, in this order; padding is 0."""
        parts = list(self.parts(documents))
        lengths = np.zeros(len(documents), dtype=np.int64)
        for part in parts:
            lengths[part.asked] = part.lengths
        longest = int(lengths.max(initial=0))
        frames = np.zeros((len(documents), longest, self.features), dtype=np.float32)
        for part in parts:
            rows = part.numbers.reshape(-1, self.features)
            for asked, start, length in zip(part.asked, part.starts, part.lengths, strict=True):
                frames[asked, :length] = rows[start : start + length]
        present = np.arange(longest) < lengths[:, None]
        return torch.from_numpy(frames), torch.from_numpy(present)
