"""Pairs of sources and targets on disk: two folders of shards with corresponding documents."""

from pathlib import Path

import numpy as np

from harken.batch.ragged import IntArray, Ragged
from harken.batch.shards import TokenShards, map_numbers
from harken.files import replacing
from harken.inputs import exists

SOURCE, TARGET, FITTING = "source", "target", "fitting.bin"
BLOCK = 1 << 20  # pairs that are compared at once
NUMBER_TYPE = np.dtype(np.int64)


class PairShards:
    """The pairs that fit a model: 1 to `max_source` source and under `max_target` target tokens.

    Their document numbers are in `fitting.bin`, which is written if it does not exist. The length
    of a pair, `pairs[indices]`, is that of the longer side, with the end token of the target.
    """

    def __init__(self, folder: Path, max_source: int, max_target: int) -> None:
        self._source, self._target = TokenShards(folder / SOURCE), TokenShards(folder / TARGET)
        if not exists(folder / FITTING):
            self._write_fitting(folder / FITTING, max_source, max_target)
        self._fitting: IntArray = map_numbers(folder / FITTING, NUMBER_TYPE)

    def __len__(self) -> int:
        return len(self._fitting)

    def __getitem__(self, pairs: IntArray) -> IntArray:
        source, target = self._lengths(self._fitting[pairs])
        longest: IntArray = np.maximum(source, target + 1)
        return longest

    @property
    def num_unfit(self) -> int:
        """The number of pairs that do not fit."""
        return len(self._source) - len(self)

    def take(self, pairs: IntArray) -> tuple[Ragged, Ragged]:
        """Return the sources and the targets of these pairs, in this order."""
        documents = self._fitting[pairs]
        return self._source.take(documents), self._target.take(documents)

    def _lengths(self, documents: IntArray) -> tuple[IntArray, IntArray]:
        return self._source.spans(documents)[1], self._target.spans(documents)[1]

    def _write_fitting(self, path: Path, max_source: int, max_target: int) -> None:
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            for start in range(0, len(self._source), BLOCK):
                documents = np.arange(start, min(start + BLOCK, len(self._source)))
                source, target = self._lengths(documents)
                fits = (source > 0) & (source <= max_source) & (target < max_target)
                file.write(documents[fits].astype(NUMBER_TYPE).tobytes())
