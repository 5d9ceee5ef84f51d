"""Sequences of unequal length as one flat array, for building batches without Python loops."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

IntArray = Integer[np.ndarray, "_count"]  # signed or not: shards are stored unsigned


class Ragged(NamedTuple):
    """The concatenated values of all sequences, and the length of each."""

    values: IntArray
    lengths: IntArray

    @property
    def starts(self) -> IntArray:
        starts: IntArray = np.cumsum(self.lengths) - self.lengths
        return starts

    def take(self, chosen: IntArray) -> "Ragged":
        """Return the sequences with these indices, in this order."""
        return ragged_slices(self.values, self.starts[chosen], self.lengths[chosen])


def ragged(sequences: Sequence[IntArray]) -> Ragged:
    """Concatenate a list of arrays."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    flat = np.concatenate(sequences) if sequences else np.zeros(0, dtype=np.int64)
    return Ragged(flat.astype(np.int64), lengths)


def ragged_indices(lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each element the index of its sequence and its index in that sequence."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    return sequence, np.arange(len(sequence)) - starts[sequence]


def ragged_slices(source: IntArray, starts: IntArray, lengths: IntArray) -> Ragged:
    """Return the slices source[start : start + length]."""
    sequence, index = ragged_indices(lengths)
    return Ragged(np.asarray(source[starts[sequence] + index], dtype=np.int64), lengths)


def concat_ragged(parts: Sequence[Ragged]) -> Ragged:
    """Return the sequences of all parts, in order."""
    values, lengths = zip(*parts, strict=True)
    return Ragged(np.concatenate(values), np.concatenate(lengths))


def append(sequences: Ragged, token: int) -> Ragged:
    """Add a token at the end of each sequence."""
    ends = np.cumsum(sequences.lengths)
    return Ragged(np.insert(sequences.values, ends, token), sequences.lengths + 1)
