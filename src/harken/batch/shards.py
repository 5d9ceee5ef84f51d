"""Documents of tokens or of frames on disk, memory-mapped.

A folder holds `tokens-00000.bin` or `frames-00000.bin` (the rows of all documents),
`ends-00000.bin` (where each document ends, int64), and `shards.json` with the number type and
counts. It is written under another name and renamed when it is complete.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.batch.ragged import IntArray, Ragged, concat_ragged, ragged_slices
from harken.errors import Failure, UserError
from harken.files import replacing_folder
from harken.inputs import file_size, read_json

MAX_HEADER = 2**24  # bytes
MAX_TOKENS = 1 << 26  # per shard: 128 MiB of uint16
MAX_NUMBERS = 1 << 25  # per shard: 128 MiB of float32


def write_shards(
    folder: Path, documents: Iterable[IntArray], vocabulary: int, *, shard_tokens: int = MAX_TOKENS
) -> None:
    """Write documents of tokens to shards, in constant memory."""
    number_type = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
    numbers = (document.astype(number_type) for document in documents)
    _write(folder, "token", numbers, {"type": number_type.name}, shard_tokens)


def write_frames(
    folder: Path,
    documents: Iterable[Float[np.ndarray, "_frames F"]],
    features: int,
    *,
    shard_numbers: int = MAX_NUMBERS,
) -> None:
    """Write utterances of float32 frames to shards, in constant memory."""

    def checked(document: np.ndarray) -> np.ndarray:
        assert document.shape[1:] == (features,), "all utterances have the same features"
        return document.astype(np.float32)

    header = {"type": "float32", "features": features}
    _write(folder, "frame", map(checked, documents), header, max(1, shard_numbers // features))


def _write(
    folder: Path,
    row: str,
    documents: Iterable[np.ndarray],
    header: Mapping[str, object],
    shard_rows: int,
) -> None:
    """Write rows to shards; a shard is complete when it has at least `shard_rows` rows."""
    counts: list[int] = []
    pending: list[np.ndarray] = []

    def write_shard() -> None:
        flat = np.concatenate(pending) if pending else np.zeros(0)
        flat.tofile(unfinished / f"{row}s-{len(counts):05d}.bin")
        ends = np.cumsum(np.array([len(document) for document in pending], dtype=np.int64))
        ends.tofile(unfinished / f"ends-{len(counts):05d}.bin")
        counts.append(len(pending))
        pending.clear()

    with replacing_folder(folder) as unfinished:
        rows = 0
        for document in documents:
            pending.append(document)
            rows += len(document)
            if rows >= shard_rows:
                write_shard()
                rows = 0
        if pending or not counts:
            write_shard()
        text = json.dumps({**header, "documents": counts})
        (unfinished / "shards.json").write_text(text, encoding="utf-8")


class Part(NamedTuple):
    """Documents of one shard: their indices in the request, and where their rows are."""

    requested: IntArray
    numbers: np.ndarray  # all rows of the shard
    starts: IntArray
    lengths: IntArray


class Shards:
    """Documents by index, across all shards of a folder."""

    def __init__(self, folder: Path, row: str) -> None:
        try:
            self.header: dict[str, Any] = read_json(
                folder / "shards.json", "the header of shards", max_bytes=MAX_HEADER
            )
            number_type, width = np.dtype(self.header["type"]), self.header.get("features", 1)
            counts = self.header["documents"]
            shards = range(len(counts))
            self._numbers = [_map(folder / f"{row}s-{n:05d}.bin", number_type) for n in shards]
            self._ends = [_map(folder / f"ends-{n:05d}.bin", np.dtype(np.int64)) for n in shards]
            for n, (numbers, ends) in enumerate(zip(self._numbers, self._ends, strict=True)):
                # A truncated file can still be mapped.
                if len(ends) != counts[n]:
                    raise ValueError(f"ends-{n:05d}.bin does not have {counts[n]} documents")
                if len(numbers) != width * (ends[-1] if counts[n] else 0):
                    raise ValueError(f"{row}s-{n:05d}.bin does not end with its last document")
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"{folder}: the {row} shards cannot be read ({error})",
                fix="delete the folder and resume the run, which encodes the data again",
            ) from None
        self._first = np.cumsum([0, *(len(ends) for ends in self._ends)])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def lengths(self) -> IntArray:
        return np.concatenate([np.diff(ends, prepend=0) for ends in self._ends])

    def parts(self, documents: IntArray) -> Iterator[Part]:
        """Yield where these documents are, shard by shard."""
        shard = np.searchsorted(self._first, documents, side="right") - 1
        for number in np.unique(shard):
            requested = np.flatnonzero(shard == number)
            local = documents[requested] - self._first[number]
            ends = self._ends[number]
            starts = np.where(local > 0, ends[np.maximum(local - 1, 0)], 0)
            yield Part(requested, self._numbers[number], starts, ends[local] - starts)


class TokenShards(Shards):
    """Documents of tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "token")

    def take(self, documents: IntArray) -> Ragged:
        """Return these documents, in this order."""
        parts = list(self.parts(documents))
        slices = [ragged_slices(part.numbers, part.starts, part.lengths) for part in parts]
        gathered = concat_ragged(slices)
        if len(parts) == 1:
            return gathered
        return gathered.take(np.argsort(np.concatenate([part.requested for part in parts])))


class FrameShards(Shards):
    """Utterances of frames."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "frame")

    @property
    def features(self) -> int:
        return int(self.header["features"])

    def take(self, documents: IntArray) -> tuple[Float[Tensor, "B T F"], Bool[Tensor, "B T"]]:
        """Return the frames of these utterances, padded with 0, and a mask of the frames."""
        parts = list(self.parts(documents))
        lengths = np.zeros(len(documents), dtype=np.int64)
        for part in parts:
            lengths[part.requested] = part.lengths
        longest = int(lengths.max(initial=0))
        frames = np.zeros((len(documents), longest, self.features), dtype=np.float32)
        for part in parts:
            rows = part.numbers.reshape(-1, self.features)
            for index, start, length in zip(part.requested, part.starts, part.lengths, strict=True):
                frames[index, :length] = rows[start : start + length]
        return torch.from_numpy(frames), torch.from_numpy(np.arange(longest) < lengths[:, None])


def _map(path: Path, number_type: np.dtype) -> np.ndarray:
    if file_size(path, "numbers of a shard") == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=number_type)
    return np.memmap(path, dtype=number_type, mode="r")
