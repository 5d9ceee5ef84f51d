import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure import interval
from harken.measure.interval import (
    Estimate,
    Sample,
    ratio,
    resampled_sums,
    share,
    share_within,
    shown,
    signed,
)


def estimate_share(right: list[bool], seed: int = 0) -> Estimate:
    return share(right).estimate(seed)


def outcomes(right: int, count: int) -> list[bool]:
    return [True] * right + [False] * (count - right)


# Wilson by hand: with none right its upper end is z^2 / (n + z^2), z^2 = 3.841459.
@pytest.mark.parametrize(
    ("count", "far"), [(1, 0.793450), (10, 0.277533), (50, 0.071348), (100, 0.036993)]
)
def test_all_alike_by_hand(count: int, far: float) -> None:
    none, every = estimate_share([False] * count), estimate_share([True] * count)
    assert (none.value, none.low, none.high) == (0.0, 0.0, pytest.approx(far, abs=1e-6))
    assert (every.value, every.low, every.high) == (1.0, pytest.approx(1 - far, abs=1e-6), 1.0)


@given(st.lists(st.booleans(), min_size=1, max_size=97), st.integers(0, 2**32))
def test_the_value_lies_in_its_interval(right: list[bool], seed: int) -> None:
    estimate = estimate_share(right, seed)
    assert estimate.value == pytest.approx(sum(right) / len(right))
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate.low < estimate.high
    assert estimate == estimate_share(right, seed)


def test_the_ends_are_those_of_the_binomial() -> None:
    # Quantiles of a binomial(100, 0.3) at 2.5 and 97.5 %, from a table: 21 and 39.
    estimate = estimate_share(outcomes(30, 100))
    assert estimate.value == pytest.approx(0.3)
    assert estimate.low == pytest.approx(0.21, abs=0.011)
    assert estimate.high == pytest.approx(0.39, abs=0.011)


def test_four_times_the_examples_halve_the_interval() -> None:
    def width(scale: int) -> float:
        estimate = estimate_share(outcomes(40 * scale, 100 * scale))
        return estimate.high - estimate.low

    assert width(16) / width(4) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(("truth", "count"), [(0.5, 47), (0.3, 101), (0.8, 199), (0.9, 499)])
def test_the_interval_holds_the_truth_as_often_as_it_says(truth: float, count: int) -> None:
    # Exactly, over every count that could come out. Counts are steps, so that no interval can hold
    # 95 % everywhere; a percentile interval at these sizes holds 92.5 to 96.5 %.
    held = 0.0
    for right in range(count + 1):
        estimate = estimate_share(outcomes(right, count), seed=right)
        chance = math.comb(count, right) * truth**right * (1 - truth) ** (count - right)
        held += chance * (estimate.low <= truth <= estimate.high)
    assert 0.925 <= held <= 0.965


def test_memory_stays_bounded_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.random.default_rng(3).integers(0, 9, size=(53, 2)).astype(float)
    whole = resampled_sums(counts, seed=5)
    monkeypatch.setattr(interval, "TOGETHER", 1009)
    sizes = interval.portions(interval.RESAMPLES, 53)
    assert sum(sizes) == interval.RESAMPLES == len(whole)
    assert max(sizes) * 53 <= 1009
    np.testing.assert_array_equal(resampled_sums(counts, seed=5), whole)


def test_words_of_a_sentence_are_not_independent() -> None:
    """With all words of a sentence alike, a sentence tells no more than one word."""
    right = [7 * one for one in outcomes(40, 101)]
    together = share_within(right, [7] * 101).estimate()
    assert together.value == pytest.approx(40 / 101)
    alone = estimate_share(outcomes(40, 101))
    assert together.high - together.low == pytest.approx(alone.high - alone.low, rel=0.05)


def test_a_figure_that_is_no_share_keeps_its_unit() -> None:
    nats = np.random.default_rng(1).exponential(2.0, size=(499, 1))
    sample = Sample(
        counts=np.hstack((nats, np.ones((499, 1)))),
        figure=lambda sums: np.exp(ratio(sums)),
        unit="perplexity",
    )
    estimate = sample.estimate()
    # The delta method: the deviation of the mean, times the slope of exp.
    spread = 1.96 * float(nats.std()) / math.sqrt(499) * estimate.value
    assert estimate.unit == "perplexity"
    assert estimate.value == pytest.approx(math.exp(float(nats.mean())))
    assert (estimate.high - estimate.low) / 2 == pytest.approx(spread, rel=0.08)


def test_only_examples_in_which_something_was_counted_tell_anything() -> None:
    some = share_within([1, 0, 2, 0, 0], [1, 0, 2, 0, 0]).estimate()
    assert some == share([True, True]).estimate()
    nothing = share_within([0, 0, 0], [0, 0, 0]).estimate()
    assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, pytest.approx(1.0))


def test_an_error_is_a_share_that_should_be_small() -> None:
    found = share(outcomes(0, 50), "error").estimate()
    assert (found.unit, found.high) == ("error", pytest.approx(0.071348, abs=1e-6))
    assert shown(0.125, "error") == "12.5 %"
    assert signed(-0.125, "error") == "-12.5"


def test_a_figure_lies_in_its_interval_even_if_chance_only_adds_to_it() -> None:
    """A mean distance of 40 parts, of two numbers each that cancel: drawn again, they do not."""
    counts = np.zeros((80, 41))
    counts[np.arange(80), np.arange(80) // 2] = np.tile((1.0, -1.0), 40)
    counts[:, -1] = 1.0
    sample = Sample(
        counts=counts,
        figure=lambda sums: np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1],
        unit="nats",
    )
    found = sample.estimate()
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high > 0.3
