"""Documents on disk, memory-mapped: a corpus larger than memory is read like an array.

A folder holds pairs `tokens-00000.bin` (all documents one after the other) and `ends-00000.bin`
(where each ends, int64), and `shards.json` with the number type and counts. It is written beside
its final name and renamed when whole, so a folder that exists is complete.

Here are documents of tokens, and what they share with those of frames in `frames.py`, whose rows
are of several numbers each.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harken.batch.ragged import Numbers, Ragged, join, ragged_slices
from harken.errors import Failure, UserError
from harken.files import replacing_folder
from harken.inputs import file_size, read_json

MAX_HEADER = 2**24  # bytes
SHARD_TOKENS = 1 << 26  # 128 MiB of uint16: few files, and none too large to copy


def write_shards(
    folder: Path,
    documents: Iterable[Numbers],
    vocabulary: int,
    *,
    shard_tokens: int = SHARD_TOKENS,
) -> None:
    """Stream documents into shards, in constant memory."""
    number_type = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
    numbers = (document.astype(number_type) for document in documents)
    write_rows(folder, "token", numbers, {"type": number_type.name}, most=shard_tokens)


def write_rows(
    folder: Path,
    row: str,
    documents: Iterable[np.ndarray],
    header: Mapping[str, object],
    *,
    most: int,
) -> None:
    """The same for rows of any kind; a shard is full with the document that brings it to `most`."""
    with replacing_folder(folder) as unfinished:
        counts: list[int] = []
        pending: list[np.ndarray] = []
        held = 0
        for document in documents:
            pending.append(document)
            held += len(document)
            if held >= most:
                counts.append(_write_shard(unfinished, row, len(counts), pending))
                pending, held = [], 0
        if pending or not counts:
            counts.append(_write_shard(unfinished, row, len(counts), pending))
        whole = json.dumps({**header, "documents": counts})
        (unfinished / "shards.json").write_text(whole, encoding="utf-8")


def _write_shard(folder: Path, row: str, number: int, documents: list[np.ndarray]) -> int:
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    flat = np.concatenate(documents) if documents else np.zeros(0)
    flat.tofile(folder / f"{row}s-{number:05d}.bin")
    np.cumsum(lengths).tofile(folder / f"ends-{number:05d}.bin")
    return len(documents)


class Part(NamedTuple):
    """Documents of one shard: where each was asked for, and where its rows are."""

    asked: Numbers
    numbers: np.ndarray  # of all rows of the shard
    starts: Numbers
    lengths: Numbers


class Shards:
    """Documents by number, across all shards of a folder."""

    def __init__(self, folder: Path, row: str) -> None:
        try:
            self.header: dict[str, Any] = read_json(
                folder / "shards.json", "the header of shards", max_bytes=MAX_HEADER
            )
            number_type, width = np.dtype(self.header["type"]), self.header.get("features", 1)
            shards = range(len(self.header["documents"]))
            self._numbers = [_map(folder / f"{row}s-{n:05d}.bin", number_type) for n in shards]
            self._ends = [_map(folder / f"ends-{n:05d}.bin", np.dtype(np.int64)) for n in shards]
            for n, documents in enumerate(self.header["documents"]):
                # A file cut off between two numbers can still be mapped.
                if len(self._ends[n]) != documents:
                    raise ValueError(f"ends-{n:05d}.bin is not of {documents} documents")
                if len(self._numbers[n]) != width * (self._ends[n][-1] if documents else 0):
                    raise ValueError(f"{row}s-{n:05d}.bin does not end with its last document")
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"{folder}: found {row} shards that cannot be read ({error}), wanted those that "
                "the run wrote",
                fix="delete the folder and resume the run: it is made again from the data",
            ) from None
        self._first = np.cumsum([0, *(len(ends) for ends in self._ends)])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def lengths(self) -> Numbers:
        return np.concatenate([np.diff(ends, prepend=0) for ends in self._ends])

    def parts(self, documents: Numbers) -> Iterator[Part]:
        """Where these documents are, shard by shard."""
        shard = np.searchsorted(self._first, documents, side="right") - 1
        for number in np.unique(shard):
            asked = np.flatnonzero(shard == number)
            local = documents[asked] - self._first[number]
            ends = self._ends[number]
            starts = np.where(local > 0, ends[np.maximum(local - 1, 0)], 0)
            yield Part(asked, self._numbers[number], starts, ends[local] - starts)


class TokenShards(Shards):
    """Documents of tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "token")

    def take(self, documents: Numbers) -> Ragged:
        """These documents, in this order."""
        parts = list(self.parts(documents))
        gathered = join([ragged_slices(part.numbers, part.starts, part.lengths) for part in parts])
        if len(parts) == 1:
            return gathered
        back = np.argsort(np.concatenate([part.asked for part in parts]))
        return gathered.take(back)


def _map(path: Path, number_type: np.dtype) -> np.ndarray:
    if file_size(path, "numbers of a shard") == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=number_type)
    return np.memmap(path, dtype=number_type, mode="r")
