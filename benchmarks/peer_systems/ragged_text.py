"""Random sentences of unequal lengths, and the batches that most programs build from them."""

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import torch
from torch import Tensor

from harken.batch.bucketing import BucketSampler

MEDIAN, SIGMA, SHORTEST, LONGEST = 20, 0.5, 3, 100  # words of a sentence
Batches = Callable[[], np.ndarray]  # returns the indices of the next batch


def sentence_lengths(sentences: int) -> np.ndarray:
    """Draw lengths from a log-normal distribution."""
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN), SIGMA, size=sentences)
    return np.clip(drawn.round().astype(int), SHORTEST, LONGEST)


def translation_lengths(sentences: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of sources and targets, which are correlated."""
    source = sentence_lengths(sentences)
    factors = np.random.default_rng(1).lognormal(0, 0.15, size=sentences)
    return source, np.clip((source * factors).round().astype(int), SHORTEST, LONGEST)


def random_tokens(lengths: Sequence[int], first: int, stop: int, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(first, stop, size=length) for length in lengths]


def random_batches(lengths: np.ndarray, budget: int) -> Batches:
    """Return shuffled batches of a fixed number of sentences, with `budget` tokens on average."""
    generator, rows = np.random.default_rng(0), max(1, round(budget / lengths.mean()))
    return lambda: generator.choice(len(lengths), size=rows, replace=False)


def bucket_batches(lengths: np.ndarray, budget: int) -> Batches:
    """Return the batches of Harken."""
    sampler, steps = BucketSampler(lengths, budget, 0), count()
    return lambda: sampler.batch(next(steps))


BATCHES = {"random": random_batches, "buckets": bucket_batches}


def pad(rows: Sequence[np.ndarray], padding: int) -> Tensor:
    tensors = [torch.from_numpy(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=padding)
