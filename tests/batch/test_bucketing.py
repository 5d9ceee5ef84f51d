from itertools import count

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harken.batch.bucketing import BucketSampler, seeded

lengths_of = st.lists(st.integers(0, 29), min_size=1, max_size=47).map(np.array)
budgets = st.integers(1, 61)
seeds = st.integers(0, 2**32)


def epoch(order: BucketSampler, number: int) -> list[list[int]]:
    """The batches of one epoch, found through `epoch(step)` alone."""
    steps = (step for step in count() if order.epoch(step) >= number)
    batches = []
    for step in steps:
        if order.epoch(step) >= number + 1:
            return batches
        batches.append(order.batch(step).tolist())
    raise AssertionError


@given(lengths_of, budgets, seeds)
def test_every_epoch_sees_every_document_once(lengths: np.ndarray, budget: int, seed: int) -> None:
    order = BucketSampler(lengths, budget, seed)
    for number in range(3):
        seen = [document for batch in epoch(order, number) for document in batch]
        assert sorted(seen) == list(range(len(lengths)))


@example(np.array([1, 2]), 3, 0)  # together they take 4 places
@given(lengths_of, budgets, seeds)
def test_a_batch_keeps_to_the_budget(lengths: np.ndarray, budget: int, seed: int) -> None:
    for batch in epoch(BucketSampler(lengths, budget, seed), 0):
        # A document longer than the budget goes alone: it must be read too.
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@given(lengths_of, budgets, seeds, st.lists(st.integers(0, 97), min_size=1, max_size=7))
def test_a_batch_depends_on_its_step_alone(
    lengths: np.ndarray, budget: int, seed: int, steps: list[int]
) -> None:
    forwards = BucketSampler(lengths, budget, seed)
    uninterrupted = [forwards.batch(step).tolist() for step in range(98)]
    epochs = [forwards.epoch(step) for step in range(98)]
    resumed = BucketSampler(lengths, budget, seed)
    for step in steps:  # late ones first, backwards, twice
        assert resumed.batch(step).tolist() == uninterrupted[step]
        assert resumed.epoch(step) == epochs[step]


@settings(max_examples=20)
@given(seeds)
def test_orders_differ(seed: int) -> None:
    lengths = np.arange(1, 102)
    order = BucketSampler(lengths, 307, seed)
    first, second = epoch(order, 0), epoch(order, 1)
    assert first != second
    assert first != epoch(BucketSampler(lengths, 307, seed + 1), 0)
    # Not only the order of the batches: each is of like lengths, but short ones do not come first.
    longest = [max(batch) for batch in first]
    assert longest != sorted(longest)


def test_epochs_count_by_hand() -> None:
    # 7 documents of 2 tokens, 3 a batch: 3 steps an epoch.
    order = BucketSampler(np.full(7, 2), 6, seed=5)
    assert [order.epoch(step) for step in range(5)] == [0, 1 / 3, 2 / 3, 1, 4 / 3]
    assert sorted(len(order.batch(step)) for step in range(3)) == [1, 3, 3]


def test_little_is_padding_and_the_budget_is_used() -> None:
    budget, lengths = 4096, seeded(3).lognormal(4, 0.7, 20_011).astype(np.int64) + 1
    batches = epoch(BucketSampler(lengths, budget, seed=3), 0)
    padded = np.array([len(batch) * lengths[batch].max() for batch in batches])
    assert padded.sum() < 1.05 * lengths.sum()
    assert padded.mean() > 0.9 * budget
    # The same numbers of documents, but any: more than twice as many places as tokens.
    shuffled = seeded(5).permutation(len(lengths))
    cuts = np.cumsum([len(batch) for batch in batches])[:-1]
    anyhow = sum(len(part) * lengths[part].max() for part in np.split(shuffled, cuts))
    assert anyhow > 2 * lengths.sum()


def test_a_document_meets_others_in_every_epoch() -> None:
    # Batches are no fixed groups that only change their places.
    lengths = np.full(5003, 7)
    order = BucketSampler(lengths, 70, seed=2)
    company = [
        {tuple(sorted(batch)) for batch in epoch(order, number) if 0 in batch}
        for number in range(3)
    ]
    assert company[0] != company[1] != company[2]


def test_streams_are_their_own() -> None:
    draws = {
        tuple(seeded(*words).integers(0, 1 << 30, 3)) for words in [(1, 2), (2, 1), (1,), (2,)]
    }
    assert len(draws) == 4
    assert (seeded(1, 2).random(5) == seeded(1, 2).random(5)).all()
