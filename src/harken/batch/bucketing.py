"""Batches of documents of similar length, filled up to a number of tokens.

A batch depends only on seed and step, so a resumed run needs no saved sampler state. An epoch is
planned in blocks of random documents, so memory does not grow with the number of documents.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from harken.batch.permutation import Permutation
from harken.batch.ragged import IntArray

POOL = 64  # batches whose documents are sorted together: little padding, still random
BLOCK = 1 << 20  # documents that are planned at once


@runtime_checkable
class Lengths(Protocol):
    """The number of tokens of each document: an array, or computed on access."""

    def __len__(self) -> int: ...
    def __getitem__(self, documents: IntArray, /) -> IntArray: ...


def rng(*seeds: int) -> np.random.Generator:
    """Return an independent random generator for each tuple of integers."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seeds)))


class BucketSampler:
    """Epochs over documents of given lengths in batches of at most `budget` padded tokens."""

    def __init__(self, lengths: Lengths, budget: int, seed: int) -> None:
        assert len(lengths) > 0, "sampling needs at least one document"
        self._lengths, self._budget, self._seed = lengths, budget, seed
        self._blocks = -(-len(lengths) // BLOCK)  # per epoch
        self._first_steps = [0]  # of every block planned so far, over all epochs
        self._planned, self._plan = -1, list[IntArray]()

    def batch(self, step: int) -> IntArray:
        """Return the indices of the documents of this step, counted from 0 over all epochs."""
        block = int(np.searchsorted(self._first_steps, step, side="right")) - 1
        self._load(block)
        while step >= self._first_steps[block] + len(self._plan):
            block += 1
            self._load(block)
        return self._plan[step - self._first_steps[block]]

    def epoch(self, step: int) -> float:
        """Return the fractional number of epochs before this step, if blocks are equally long."""
        self.batch(step)
        part = (step - self._first_steps[self._planned]) / len(self._plan)
        return (self._planned + part) / self._blocks

    def _load(self, block: int) -> None:
        if self._planned == block:
            return
        self._plan, self._planned = self._plan_block(*divmod(block, self._blocks)), block
        if len(self._first_steps) == block + 1:
            self._first_steps.append(self._first_steps[block] + len(self._plan))

    def _plan_block(self, epoch: int, block: int) -> list[IntArray]:
        count, generator = len(self._lengths), rng(self._seed, epoch)
        order = Permutation(count, generator)
        chosen = order.take(np.arange(block * BLOCK, min((block + 1) * BLOCK, count)))
        lengths = np.asarray(self._lengths[chosen], dtype=np.int64)
        pool = max(1, int(POOL * self._budget / max(lengths.mean(), 1.0)))
        batches: list[IntArray] = []
        for start in range(0, len(chosen), pool):
            bucket = slice(start, start + pool)
            ranked = np.argsort(lengths[bucket], kind="stable")
            batches.extend(_cut(chosen[bucket][ranked], lengths[bucket][ranked], self._budget))
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
