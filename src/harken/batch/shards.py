"""Token numbers on disk, memory-mapped: a corpus larger than memory is read like an array.

A folder holds pairs `tokens-00000.bin` (all documents one after the other) and `ends-00000.bin`
(where each ends, int64), and `shards.json` with the number type and counts. It is written beside
its final name and renamed when whole, so a folder that exists is complete.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from harken.batch.ragged import Numbers, Ragged, join, take_slices
from harken.errors import Failure
from harken.files import replacing_folder

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
    with replacing_folder(folder) as unfinished:
        counts: list[int] = []
        pending: list[Numbers] = []
        held = 0
        for document in documents:
            pending.append(document.astype(number_type))
            held += len(document)
            if held >= shard_tokens:
                counts.append(_write_shard(unfinished, len(counts), pending))
                pending, held = [], 0
        if pending or not counts:
            counts.append(_write_shard(unfinished, len(counts), pending))
        header = {"type": number_type.name, "documents": counts}
        (unfinished / "shards.json").write_text(json.dumps(header), encoding="utf-8")


def _write_shard(folder: Path, number: int, documents: list[Numbers]) -> int:
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    flat = np.concatenate(documents) if documents else np.zeros(0, dtype=np.uint16)
    flat.tofile(folder / f"tokens-{number:05d}.bin")
    np.cumsum(lengths).tofile(folder / f"ends-{number:05d}.bin")
    return len(documents)


class TokenShards:
    """Documents by number, across all shards of a folder."""

    def __init__(self, folder: Path) -> None:
        try:
            header = json.loads((folder / "shards.json").read_text(encoding="utf-8"))
            number_type = np.dtype(header["type"])
            shards = range(len(header["documents"]))
            self._tokens = [_map(folder / f"tokens-{n:05d}.bin", number_type) for n in shards]
            self._ends = [_map(folder / f"ends-{n:05d}.bin", np.dtype(np.int64)) for n in shards]
            for n, documents in enumerate(header["documents"]):
                # A file cut off between two numbers can still be mapped.
                if len(self._ends[n]) != documents:
                    raise ValueError(f"ends-{n:05d}.bin is not of {documents} documents")
                if len(self._tokens[n]) != (self._ends[n][-1] if documents else 0):
                    raise ValueError(f"tokens-{n:05d}.bin does not end with its last document")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failure(
                f"{folder}: found token shards that cannot be read ({error}), wanted those that "
                "the run wrote",
                fix="delete the folder and resume the run: it is made again from the data",
            ) from None
        self._first = np.cumsum([0, *(len(ends) for ends in self._ends)])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def lengths(self) -> Numbers:
        return np.concatenate([np.diff(ends, prepend=0) for ends in self._ends])

    def take(self, documents: Numbers) -> Ragged:
        """These documents, in this order."""
        shard = np.searchsorted(self._first, documents, side="right") - 1
        parts: list[Ragged] = []
        order: list[Numbers] = []
        for number in np.unique(shard):
            mine = np.flatnonzero(shard == number)
            local = documents[mine] - self._first[number]
            ends = self._ends[number]
            starts = np.where(local > 0, ends[np.maximum(local - 1, 0)], 0)
            parts.append(take_slices(self._tokens[number], starts, ends[local] - starts))
            order.append(mine)
        gathered = join(parts)
        if len(parts) == 1:
            return gathered
        back = np.argsort(np.concatenate(order))
        return gathered.take(back)


def _map(path: Path, number_type: np.dtype) -> Numbers:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=number_type)
    return np.memmap(path, dtype=number_type, mode="r")
