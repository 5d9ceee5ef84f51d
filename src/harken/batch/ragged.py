"""Sequences of unequal length as one flat array: the form in which batches are made.

All work on them is index arithmetic over the flat array; no Python loop ever meets a token.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Integer

Numbers = Integer[np.ndarray, "_count"]  # signed or not: shards are stored unsigned


class Ragged(NamedTuple):
    """`values` of all sequences one after the other, `lengths` of each."""

    values: Numbers
    lengths: Numbers

    @property
    def starts(self) -> Numbers:
        starts: Numbers = np.cumsum(self.lengths) - self.lengths
        return starts

    def take(self, chosen: Numbers) -> "Ragged":
        """The sequences at these places, in this order."""
        return ragged_slices(self.values, self.starts[chosen], self.lengths[chosen])


def ragged(sequences: Sequence[Numbers]) -> Ragged:
    """From a list of arrays."""
    lengths = np.array([len(one) for one in sequences], dtype=np.int64)
    flat = np.concatenate(sequences) if sequences else np.zeros(0, dtype=np.int64)
    return Ragged(flat.astype(np.int64), lengths)


def places(lengths: Numbers) -> tuple[Numbers, Numbers]:
    """(which sequence, which place in it) of every element of sequences with these lengths."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    return owner, np.arange(len(owner)) - starts[owner]


def ragged_slices(source: Numbers, starts: Numbers, lengths: Numbers) -> Ragged:
    """The slices source[start : start + length], one after the other."""
    owner, place = places(lengths)
    return Ragged(np.asarray(source[starts[owner] + place], dtype=np.int64), lengths)


def join(parts: Sequence[Ragged]) -> Ragged:
    """The sequences of all parts, those of the first part first."""
    return Ragged(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )


def append(sequences: Ragged, token: int) -> Ragged:
    """Every sequence with one more token behind it."""
    ends = np.cumsum(sequences.lengths)
    return Ragged(np.insert(sequences.values, ends, token), sequences.lengths + 1)
