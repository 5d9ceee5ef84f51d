"""Batches of documents of similar length, filled up to a number of tokens.

A batch depends only on seed and step, so a resumed run needs no saved sampler state.
"""

import numpy as np

from harken.batch.ragged import IntArray

POOL = 64  # batches whose documents are sorted together: little padding, still random


def rng(*seeds: int) -> np.random.Generator:
    """Return an independent random generator for each tuple of integers."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seeds)))


class BucketSampler:
    """Epochs over documents of given lengths in batches of at most `budget` padded tokens."""

    def __init__(self, lengths: IntArray, budget: int, seed: int) -> None:
        assert len(lengths) > 0, "sampling needs at least one document"
        self._lengths, self._budget = np.asarray(lengths, dtype=np.int64), budget
        self._seed = seed
        self._first_steps = [0]  # of every epoch planned so far
        self._planned, self._plan = -1, list[IntArray]()

    def batch(self, step: int) -> IntArray:
        """Return the indices of the documents of this step, counted from 0 over all epochs."""
        epoch = int(np.searchsorted(self._first_steps, step, side="right")) - 1
        self._load(epoch)
        while step >= self._first_steps[epoch] + len(self._plan):
            epoch += 1
            self._load(epoch)
        return self._plan[step - self._first_steps[epoch]]

    def epoch(self, step: int) -> float:
        """Return the number of epochs before this step."""
        self.batch(step)
        return self._planned + (step - self._first_steps[self._planned]) / len(self._plan)

    def _load(self, epoch: int) -> None:
        if self._planned == epoch:
            return
        self._plan, self._planned = self._plan_epoch(epoch), epoch
        if len(self._first_steps) == epoch + 1:
            self._first_steps.append(self._first_steps[epoch] + len(self._plan))

    def _plan_epoch(self, epoch: int) -> list[IntArray]:
        generator = rng(self._seed, epoch)
        shuffled = generator.permutation(len(self._lengths))
        pool = max(1, int(POOL * self._budget / max(self._lengths.mean(), 1.0)))
        batches: list[IntArray] = []
        for start in range(0, len(shuffled), pool):
            bucket = shuffled[start : start + pool]
            ranked = bucket[np.argsort(self._lengths[bucket], kind="stable")]
            batches.extend(_cut(ranked, self._lengths[ranked], self._budget))
        return [batches[index] for index in generator.permutation(len(batches))]


def _cut(documents: IntArray, lengths: IntArray, budget: int) -> list[IntArray]:
    """Cut a list sorted by length where rows times the maximum length would exceed the budget."""
    batches = []
    start = 0
    while start < len(documents):
        candidates = lengths[start : start + max(1, budget // max(int(lengths[start]), 1))]
        padded = candidates * np.arange(1, len(candidates) + 1)  # increasing
        rows = max(1, int(np.searchsorted(padded, budget, side="right")))
        batches.append(documents[start : start + rows])
        start += rows
    return batches
