"""Documents of tokens or of frames on disk, memory-mapped.

A folder holds `tokens.bin` or `frames.bin` (the rows of all documents), `ends.bin` (where each
document ends, int64), and `shards.json` with the number type and counts, which is written last.
Tokens are appended in batches, so an interrupted write continues after the last complete document.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.batch.ragged import IntArray, Ragged, ragged_slices
from harken.errors import Failure, UserError
from harken.files import convert_write_errors, replacing_folder, sync, write_text
from harken.inputs import exists, file_size, read_json

HEADER, ENDS = "shards.json", "ends.bin"
MAX_HEADER = 2**24  # bytes


def write_shards(
    folder: Path, batches: Callable[[int], Iterable[Sequence[IntArray]]], vocabulary: int
) -> None:
    """Write documents of tokens in constant memory, unless the folder is complete.

    `batches(count)` yields the documents after the first `count`, several at a time. A batch is on
    the disk before the next one is requested, so a process that is killed loses at most one batch.
    """
    if exists(folder / HEADER):
        return
    dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
    with convert_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        documents, total = _cut_incomplete(folder, dtype.itemsize)
        for batch in batches(documents):
            total = _append(folder / "tokens.bin", batch, dtype, total, synced=True)
            documents += len(batch)
        write_text(folder / HEADER, _header(documents, {"type": dtype.name}))


def write_frames(
    folder: Path, documents: Iterable[Float[np.ndarray, "_frames F"]], features: int
) -> None:
    """Write utterances of float32 frames in constant memory, all or none."""
    count = total = 0
    with replacing_folder(folder) as unfinished:
        for name in ("frames.bin", ENDS):
            (unfinished / name).touch()
        for document in documents:
            assert document.shape[1:] == (features,), "all utterances have the same features"
            total = _append(unfinished / "frames.bin", [document], np.dtype(np.float32), total)
            count += 1
        header = _header(count, {"type": "float32", "features": features})
        (unfinished / HEADER).write_text(header, encoding="utf-8")


def _append(
    path: Path, documents: Sequence[np.ndarray], dtype: Any, total: int, synced: bool = False
) -> int:
    """Append rows, then their ends, and return the new number of rows."""
    ends = total + np.cumsum([len(document) for document in documents], dtype=np.int64)
    rows = np.concatenate([document.astype(dtype) for document in documents])
    # An end must not be on the disk before its rows.
    for file_path, numbers in ((path, rows), (path.with_name(ENDS), ends)):
        with file_path.open("ab") as file:
            file.write(numbers.tobytes())
        if synced:
            sync(file_path)
    return int(ends[-1])


def _cut_incomplete(folder: Path, bytes_per_token: int) -> tuple[int, int]:
    """Remove what follows the last complete document; return the numbers of documents and rows."""
    tokens, ends_path = folder / "tokens.bin", folder / ENDS
    for path in (tokens, ends_path):
        path.touch()
    stored = file_size(tokens) // bytes_per_token
    with ends_path.open("r+b") as file:
        file.truncate(file_size(ends_path) // 8 * 8)
    ends = map_array(ends_path, np.dtype(np.int64))
    documents = int(np.searchsorted(ends, stored, side="right"))
    total = int(ends[documents - 1]) if documents else 0
    del ends  # Windows cannot truncate a file that is mapped
    for path, size in ((ends_path, 8 * documents), (tokens, bytes_per_token * total)):
        with path.open("r+b") as file:
            file.truncate(size)
    return documents, total


def _header(documents: int, fields: Mapping[str, object]) -> str:
    return json.dumps({**fields, "documents": documents})


class Shards:
    """Documents by index; a row is a token or a frame."""

    def __init__(self, folder: Path, kind: Literal["token", "frame"]) -> None:
        try:
            self.header: dict[str, Any] = read_json(
                folder / HEADER, "the header of shards", max_bytes=MAX_HEADER
            )
            count, width = self.header["documents"], self.header.get("features", 1)
            self.numbers = map_array(folder / f"{kind}s.bin", np.dtype(self.header["type"]))
            self._ends = map_array(folder / ENDS, np.dtype(np.int64))
            # A truncated file can still be mapped.
            if len(self._ends) != count:
                raise ValueError(f"{ENDS} does not have {count} documents")
            if len(self.numbers) != width * (self._ends[-1] if count else 0):
                raise ValueError(f"{kind}s.bin does not end with its last document")
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"{folder}: the {kind} shards cannot be read ({error})",
                fix="delete the folder and resume the run, which encodes the data again",
            ) from None

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def lengths(self) -> IntArray:
        return np.diff(self._ends, prepend=0)

    def spans(self, documents: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first row and the number of rows of these documents."""
        starts = np.where(documents > 0, self._ends[np.maximum(documents - 1, 0)], 0)
        return starts, self._ends[documents] - starts


class TokenShards(Shards):
    """Documents of tokens; `numbers` is the stream of all tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "token")

    def take(self, documents: IntArray) -> Ragged:
        """Return these documents, in this order."""
        return ragged_slices(self.numbers, *self.spans(documents))


class FrameShards(Shards):
    """Utterances of frames."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "frame")

    @property
    def features(self) -> int:
        return int(self.header["features"])

    def take(self, documents: IntArray) -> tuple[Float[Tensor, "B T F"], Bool[Tensor, "B T"]]:
        """Return the frames of these utterances, padded with 0, and a mask of the frames."""
        if len(documents) == 0:  # no document may exist at all
            return torch.zeros(0, 0, self.features), torch.zeros(0, 0, dtype=torch.bool)
        starts, lengths = self.spans(documents)
        longest, rows = int(lengths.max()), self.numbers.reshape(-1, self.features)
        frames = np.zeros((len(documents), longest, self.features), dtype=np.float32)
        for frame_rows, start, length in zip(frames, starts, lengths, strict=True):
            frame_rows[:length] = rows[start : start + length]
        return torch.from_numpy(frames), torch.from_numpy(np.arange(longest) < lengths[:, None])


def map_array(path: Path, dtype: np.dtype) -> np.ndarray:
    """Map the numbers of a file into memory."""
    if file_size(path, "numbers of a shard") == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")
