"""A stream of tokens to windows: to learn from in a random order, to measure from left to right.

    learning    every epoch a random offset, then all windows side by side from there on, shuffled;
                so each token is a target once an epoch (but for less than two windows' worth at
                the ends) and is met with another length of context in the next
    measuring   windows that start `stride` apart; each counts what those before it did not, so
                every token but the first is a target exactly once

Both are functions of numbers alone: (seed, step) for learning, (count, length, stride) for
measuring. A stream is any array, memory-mapped or not.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from harken.batch.bucketing import seeded
from harken.batch.padding import TokenBatch, next_token_batch
from harken.batch.ragged import Numbers, ragged_slices


class Windows:
    """Batches of `rows` windows of `length` targets each."""

    def __init__(self, stream: Numbers, length: int, rows: int, seed: int) -> None:
        targets = len(stream) - 1
        assert targets > 0, "a window needs a token and one that follows it"
        self._stream, self._rows, self._seed = stream, rows, seed
        self._length = min(length, targets)
        # One window fewer than would fit leaves room for any offset.
        self._count = max(1, targets // self._length - 1)
        self._slack = targets - self._count * self._length

    def batch(self, step: int) -> TokenBatch:
        """The windows of this step, counted from 0 over all epochs."""
        places = np.arange(step * self._rows, (step + 1) * self._rows)
        starts = [self._start(*divmod(int(place), self._count)) for place in places]
        lengths = np.full(self._rows, self._length + 1)
        return next_token_batch(
            ragged_slices(self._stream, np.array(starts), lengths),
            np.ones(self._rows, dtype=np.int64),
            filler=0,  # of which there is none: all windows are of one length
        )

    def _start(self, epoch: int, place: int) -> int:
        offset, order = _shuffled(self._seed, epoch, self._count, self._slack)
        return offset + int(order[place]) * self._length


@lru_cache(maxsize=4)
def _shuffled(seed: int, epoch: int, count: int, slack: int) -> tuple[int, Numbers]:
    """(where the first window of an epoch begins, the order in which its windows are met)."""
    random = seeded(seed, epoch)
    return int(random.integers(0, slack + 1)), random.permutation(count)


class SlidingWindows(NamedTuple):
    """Windows over a stream: where each starts, its tokens, its first target that counts."""

    starts: Numbers
    lengths: Numbers
    first_targets: Numbers


def sliding_windows(count: int, length: int, stride: int) -> SlidingWindows:
    """Windows of at most `length` targets over `count` tokens, every target counted once.

    But for those of the first window, a counted target has at least `length - stride` tokens
    before its window's first counted one.
    """
    assert 0 < stride <= length and count > 1, "windows that leave nothing out"
    targets = count - 1
    # The window that reaches the end is the last.
    windows = 1 + max(0, -(-(targets - length) // stride))
    starts = stride * np.arange(windows)
    ends = np.minimum(starts + length, targets)
    counted_before = np.concatenate(([0], ends[:-1]))
    return SlidingWindows(starts, ends - starts + 1, counted_before - starts + 1)


def covering_batches(
    stream: Numbers, windows: SlidingWindows, rows: int, filler: int
) -> Iterator[TokenBatch]:
    """The windows from left to right, `rows` at a time."""
    for first in range(0, len(windows.starts), rows):
        some = slice(first, first + rows)
        sequences = ragged_slices(stream, windows.starts[some], windows.lengths[some])
        yield next_token_batch(sequences, windows.first_targets[some], filler)
