"""Pairs of sources and targets on disk: two folders of shards with corresponding documents."""

from pathlib import Path

import numpy as np

from harken.batch.ragged import IntArray, Ragged
from harken.batch.shards import TokenShards, map_array
from harken.files import replacing
from harken.inputs import exists

SOURCE, TARGET, FITTING = "source", "target", "fitting.bin"
BLOCK = 1 << 20  # pairs whose lengths are checked at once
INDEX_DTYPE = np.dtype(np.int64)


class PairShards:
    """The pairs of 1 to `max_source` source tokens and fewer than `max_target` target tokens.

    Their document numbers are in `fitting.bin`, which is written if it does not exist.
    `shards[indices]` returns the lengths of pairs: the tokens of the longer side.
    """

    def __init__(self, folder: Path, max_source: int, max_target: int) -> None:
        self._source, self._target = TokenShards(folder / SOURCE), TokenShards(folder / TARGET)
        if not exists(folder / FITTING):
            self._write_fitting(folder / FITTING, max_source, max_target)
        self._fitting: IntArray = map_array(folder / FITTING, INDEX_DTYPE)

    def __len__(self) -> int:
        return len(self._fitting)

    def __getitem__(self, indices: IntArray) -> IntArray:
        source, target = self._lengths(self._fitting[indices])
        longest: IntArray = np.maximum(source, target + 1)
        return longest

    @property
    def num_unfit(self) -> int:
        """The number of pairs that do not fit."""
        return len(self._source) - len(self)

    def take(self, indices: IntArray) -> tuple[Ragged, Ragged]:
        """Return the sources and the targets of these pairs, in this order."""
        documents = self._fitting[indices]
        return self._source.take(documents), self._target.take(documents)

    def _lengths(self, documents: IntArray) -> tuple[IntArray, IntArray]:
        return self._source.spans(documents)[1], self._target.spans(documents)[1]

    def _write_fitting(self, path: Path, max_source: int, max_target: int) -> None:
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            for start in range(0, len(self._source), BLOCK):
                documents = np.arange(start, min(start + BLOCK, len(self._source)))
                source, target = self._lengths(documents)
                fits = (source > 0) & (source <= max_source) & (target < max_target)
                file.write(documents[fits].astype(INDEX_DTYPE).tobytes())
