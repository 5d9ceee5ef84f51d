"""Computed orders are bijections and look random."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.batch import bucketing, permutation
from harken.batch.bucketing import BucketSampler, rng
from harken.batch.permutation import Permutation, feistel

seeds = st.integers(0, 2**32)


def keys(*seed: int) -> np.ndarray:
    return rng(*seed).integers(0, 1 << 64, permutation.ROUNDS, dtype=np.uint64)


@given(st.integers(1, 5000), seeds)
def test_a_computed_order_is_a_bijection(count: int, seed: int) -> None:
    order = feistel(np.arange(count), count, keys(seed))
    assert sorted(order.tolist()) == list(range(count))


@given(st.integers(1, 2**62), seeds, st.lists(st.floats(0, 1, exclude_max=True), max_size=20))
def test_large_ranges(count: int, seed: int, shares: list[float]) -> None:
    """Results are in the range and distinct, and do not depend on the other indices."""
    indices = np.unique(np.array([min(int(share * count), count - 1) for share in shares], int))
    order = feistel(indices, count, keys(seed))
    assert ((order >= 0) & (order < count)).all()
    assert len(np.unique(order)) == len(indices)
    for index, result in zip(indices, order, strict=True):
        assert feistel(np.array([index]), count, keys(seed)).tolist() == [result]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_orders_are_equally_frequent(count: int) -> None:
    draws = 4800
    orders = Counter(
        tuple(feistel(np.arange(count), count, keys(seed)).tolist()) for seed in range(draws)
    )
    expected = draws / {2: 2, 3: 6, 4: 24}[count]
    assert len(orders) == draws / expected
    # chi-squared, 23 degrees of freedom at most: above 60 with a probability of 4e-5
    assert sum((number - expected) ** 2 / expected for number in orders.values()) < 60


@pytest.mark.parametrize("count", [1009, 65536, 1_000_003])
def test_items_are_uniform_and_neighbors_independent(count: int) -> None:
    """Chi-squared of pairs (item, next item) in a grid of 8 x 8 cells: 63 degrees of freedom."""
    order = feistel(np.arange(count), count, keys(7))
    cells = order * 8 // count
    observed = np.bincount(cells[:-1] * 8 + cells[1:], minlength=64)
    expected = (count - 1) / 64
    assert ((observed - expected) ** 2 / expected).sum() < 130
    # A sequential order would fail.
    cells = np.sort(cells)
    observed = np.bincount(cells[:-1] * 8 + cells[1:], minlength=64)
    assert ((observed - expected) ** 2 / expected).sum() > 130


def test_small_orders_are_stored_and_large_ones_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rng(3).permutation(100)
    assert Permutation(100, rng(3)).take(np.arange(100)).tolist() == expected.tolist()
    monkeypatch.setattr(permutation, "MAX_STORED", 99)
    computed = Permutation(100, rng(3)).take(np.arange(100)).tolist()
    assert computed != expected.tolist() and sorted(computed) == list(range(100))
    assert computed == Permutation(100, rng(3)).take(np.arange(100)).tolist()
    assert computed != Permutation(100, rng(4)).take(np.arange(100)).tolist()


@settings(max_examples=25)
@given(st.integers(1, 97), st.integers(1, 61), seeds)
def test_documents_in_blocks_occur_once_per_epoch(count: int, budget: int, seed: int) -> None:
    lengths = rng(seed).integers(0, 29, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucketing, "BLOCK", 10)
        patch.setattr(permutation, "MAX_STORED", 10)
        sampler = BucketSampler(lengths, budget, seed)
        steps = 0
        epochs: list[list[int]] = [[], []]
        while (epoch := int(sampler.epoch(steps))) < 2:
            epochs[epoch] += sampler.batch(steps).tolist()
            steps += 1
        assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(count))
        resumed = BucketSampler(lengths, budget, seed)
        step = steps * 2 // 3
        assert resumed.batch(step).tolist() == sampler.batch(step).tolist()
