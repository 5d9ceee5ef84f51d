from itertools import chain, count, takewhile

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harken.batch.bucketing import BucketSampler, rng

lengths_of = st.lists(st.integers(0, 29), min_size=1, max_size=47).map(np.array)
budgets = st.integers(1, 61)
seeds = st.integers(0, 2**32)


def epoch(sampler: BucketSampler, number: int) -> list[list[int]]:
    """Return the batches of one epoch by `epoch(step)`."""
    first = next(step for step in count() if sampler.epoch(step) >= number)
    steps = takewhile(lambda step: sampler.epoch(step) < number + 1, count(first))
    return [sampler.batch(step).tolist() for step in steps]


@example(np.array([1, 2]), 3, 0)  # together they take 4 tokens
@given(lengths_of, budgets, seeds)
def test_each_document_once_per_epoch(lengths: np.ndarray, budget: int, seed: int) -> None:
    sampler = BucketSampler(lengths, budget, seed)
    for number in range(3):
        batches = epoch(sampler, number)
        assert sorted(chain.from_iterable(batches)) == list(range(len(lengths)))
        for batch in batches:  # a document longer than the budget is a batch of its own
            assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@settings(max_examples=30)
@given(lengths_of, budgets, seeds, st.lists(st.integers(0, 97), min_size=1, max_size=7))
def test_a_batch_depends_on_its_step_only(
    lengths: np.ndarray, budget: int, seed: int, steps: list[int]
) -> None:
    forwards = BucketSampler(lengths, budget, seed)
    uninterrupted = [forwards.batch(step).tolist() for step in range(98)]
    epochs = [forwards.epoch(step) for step in range(98)]
    resumed = BucketSampler(lengths, budget, seed)
    for step in steps:  # in any order
        assert resumed.batch(step).tolist() == uninterrupted[step]
        assert resumed.epoch(step) == epochs[step]


@settings(max_examples=20)
@given(seeds)
def test_orders_differ(seed: int) -> None:
    lengths = np.arange(1, 102)
    sampler = BucketSampler(lengths, 307, seed)
    first, second = epoch(sampler, 0), epoch(sampler, 1)
    assert first != second
    assert first != epoch(BucketSampler(lengths, 307, seed + 1), 0)
    # Batches are shuffled: the short ones do not come first.
    longest = [max(batch) for batch in first]
    assert longest != sorted(longest)


def test_epochs_count_by_hand() -> None:
    # 7 documents of 2 tokens, 3 per batch: 3 steps per epoch.
    sampler = BucketSampler(np.full(7, 2), 6, seed=5)
    assert [sampler.epoch(step) for step in range(5)] == [0, 1 / 3, 2 / 3, 1, 4 / 3]
    assert sorted(len(sampler.batch(step)) for step in range(3)) == [1, 3, 3]


def test_little_is_padding_and_the_budget_is_used() -> None:
    budget, lengths = 4096, rng(3).lognormal(4, 0.7, 20_011).astype(np.int64) + 1
    batches = epoch(BucketSampler(lengths, budget, seed=3), 0)
    padded = np.array([len(batch) * lengths[batch].max() for batch in batches])
    assert padded.sum() < 1.05 * lengths.sum()
    assert padded.mean() > 0.9 * budget
    # Batches of random documents have more padding than tokens.
    shuffled = rng(5).permutation(len(lengths))
    cuts = np.cumsum([len(batch) for batch in batches])[:-1]
    random_batches = np.split(shuffled, cuts)
    assert sum(len(part) * lengths[part].max() for part in random_batches) > 2 * lengths.sum()


def test_batches_have_other_documents_in_each_epoch() -> None:
    sampler = BucketSampler(np.full(503, 7), 70, seed=2)
    first, second, third = (
        [sorted(batch) for batch in epoch(sampler, number) if 0 in batch] for number in range(3)
    )
    assert first != second != third


def test_generators_are_independent() -> None:
    draws = {tuple(rng(*seeds).integers(0, 1 << 30, 3)) for seeds in [(1, 2), (2, 1), (1,), (2,)]}
    assert len(draws) == 4
    assert (rng(1, 2).random(5) == rng(1, 2).random(5)).all()
