"""Which documents go into which batch: a seeded order that any step can be asked for.

Documents of like length share a batch, so that little of it is padding, and a batch is filled up to
a budget of tokens, not to a number of rows. The whole order is a function of (seed, step): a
resumed run asks for step 1234 and gets what the uninterrupted run got, with no state saved.
"""

import numpy as np

from harken.batch.ragged import Numbers

POOL = 64  # batches whose documents are sorted together: enough for little padding, still random


def seeded(*words: int) -> np.random.Generator:
    """A random stream of its own for every tuple of numbers."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))


class BucketSampler:
    """Epochs over documents of given lengths in batches of at most `budget` padded tokens."""

    def __init__(self, lengths: Numbers, budget: int, seed: int) -> None:
        assert len(lengths) > 0, "an order needs at least one document"
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._budget = budget
        self._seed = seed
        self._first_steps = [0]  # of every epoch planned so far
        self._planned = -1
        self._plan: list[Numbers] = []

    def batch(self, step: int) -> Numbers:
        """The documents of this step, counted from 0 over all epochs."""
        epoch = int(np.searchsorted(self._first_steps, step, side="right")) - 1
        self._load(epoch)
        while step >= self._first_steps[epoch] + len(self._plan):
            epoch += 1
            self._load(epoch)
        return self._plan[step - self._first_steps[epoch]]

    def epoch(self, step: int) -> float:
        """How often every document has been seen by this step."""
        self.batch(step)
        return self._planned + (step - self._first_steps[self._planned]) / len(self._plan)

    def _load(self, epoch: int) -> None:
        if self._planned == epoch:
            return
        self._plan, self._planned = self._make(epoch), epoch
        if len(self._first_steps) == epoch + 1:
            self._first_steps.append(self._first_steps[epoch] + len(self._plan))

    def _make(self, epoch: int) -> list[Numbers]:
        random = seeded(self._seed, epoch)
        shuffled = random.permutation(len(self._lengths))
        pool = max(1, int(POOL * self._budget / max(self._lengths.mean(), 1.0)))
        batches: list[Numbers] = []
        for start in range(0, len(shuffled), pool):
            together = shuffled[start : start + pool]
            ranked = together[np.argsort(self._lengths[together], kind="stable")]
            batches.extend(_cut(ranked, self._lengths[ranked], self._budget))
        return [batches[place] for place in random.permutation(len(batches))]


def _cut(documents: Numbers, lengths: Numbers, budget: int) -> list[Numbers]:
    """Cut a list sorted by length where rows times the longest would pass the budget."""
    batches = []
    start = 0
    while start < len(documents):
        # Lengths grow and so does rows x longest: the first place over budget ends the batch.
        ahead = lengths[start : start + max(1, budget // max(int(lengths[start]), 1))]
        fits = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), budget, side="right"))
        batches.append(documents[start : start + max(1, fits)])
        start += max(1, fits)
    return batches
