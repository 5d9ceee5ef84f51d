"""Windows of a token stream: in random order for training, from left to right for evaluation.

training     each epoch has a random offset; the windows from there on are disjoint and
             shuffled. Except for fewer than two windows of tokens at the ends of the stream, a
             token is a target once per epoch, each time with another context
evaluation   windows start `stride` apart; each counts only the targets that earlier windows
             do not have, so that every token except the first is counted once
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from harken.batch.bucketing import rng
from harken.batch.padding import TokenBatch, next_token_batch
from harken.batch.permutation import Permutation
from harken.batch.ragged import IntArray, ragged_slices


class RandomWindows:
    """Batches of `rows` windows of `length` targets each; a batch depends only on its index."""

    def __init__(self, stream: IntArray, length: int, rows: int, seed: int) -> None:
        targets = len(stream) - 1
        assert targets > 0, "a window needs a token and one that follows it"
        self._stream, self._rows, self._seed = stream, rows, seed
        self._length = min(length, targets)
        # Use one window fewer than fits, so that the offset can vary.
        self._count = max(1, targets // self._length - 1)
        self._slack = targets - self._count * self._length

    @property
    def epochs_per_batch(self) -> float:
        return self._rows / self._count

    def batch(self, step: int) -> TokenBatch:
        """Return the windows of this step, counted from 0 over all epochs."""
        epochs, indices = np.divmod(
            np.arange(step * self._rows, (step + 1) * self._rows), self._count
        )
        starts = np.empty_like(indices)
        firsts = np.unique(epochs, return_index=True)[1].tolist()
        for first, end in pairwise([*firsts, len(epochs)]):
            offset, order = _plan_epoch(self._seed, int(epochs[first]), self._count, self._slack)
            starts[first:end] = offset + order.take(indices[first:end]) * self._length
        lengths = np.full(self._rows, self._length + 1)
        sequences = ragged_slices(self._stream, starts, lengths)
        return next_token_batch(sequences, np.ones(self._rows, dtype=np.int64), padding_value=0)


@lru_cache(maxsize=4)
def _plan_epoch(seed: int, epoch: int, count: int, slack: int) -> tuple[int, Permutation]:
    """Return the offset of the first window of an epoch and the order of its windows."""
    generator = rng(seed, epoch)
    return int(generator.integers(0, slack + 1)), Permutation(count, generator)


class SlidingWindows(NamedTuple):
    """Windows over a stream: start, number of tokens and index of the first counted target."""

    starts: IntArray
    lengths: IntArray
    first_targets: IntArray


def sliding_windows(count: int, length: int, stride: int) -> SlidingWindows:
    """Return windows of at most `length` targets over `count` tokens, every target counted once.

    Except in the first window, at least `length - stride` tokens precede a counted target.
    """
    assert 0 < stride <= length and count > 1, "windows must cover the stream"
    targets = count - 1
    windows = 1 + max(0, -(-(targets - length) // stride))
    starts = stride * np.arange(windows)
    ends = np.minimum(starts + length, targets)
    counted_before = np.concatenate(([0], ends[:-1]))
    return SlidingWindows(starts, ends - starts + 1, counted_before - starts + 1)


def sliding_batches(
    stream: IntArray, windows: SlidingWindows, rows: int, padding_value: int
) -> Iterator[TokenBatch]:
    """Yield the windows from left to right, `rows` at a time."""
    for first in range(0, len(windows.starts), rows):
        starts, lengths, first_targets = (part[first : first + rows] for part in windows)
        yield next_token_batch(ragged_slices(stream, starts, lengths), first_targets, padding_value)
