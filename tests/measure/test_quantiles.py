"""Quantiles against printed tables, and against binomial sums."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.quantiles import incomplete_beta, lower_bound, t_quantile, upper_bound


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (9, 2.26216), (29, 2.04523), (1e7, 1.95996)],
)
def test_t_by_the_table(freedom: float, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, rel=3e-6)


def at_least(successes: int, trials: int, rate: float) -> float:
    return math.fsum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        for k in range(successes, trials + 1)
    )


@given(st.integers(1, 47).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_solves_the_binomial_tails(outcome: tuple[int, int]) -> None:
    successes, trials = outcome
    low, high = (bound(successes, trials, 0.025) for bound in (lower_bound, upper_bound))
    assert 0 <= low < successes / trials + 1e-9
    assert successes / trials - 1e-9 < high <= 1
    if successes > 0:
        assert at_least(successes, trials, low) == pytest.approx(0.025, rel=1e-9)
    if successes < trials:
        assert 1 - at_least(successes + 1, trials, high) == pytest.approx(0.025, rel=1e-9)


@given(st.floats(0.3, 50), st.floats(0.3, 50), st.floats(0.01, 0.99))
def test_incomplete_beta_by_its_recurrence(a: float, b: float, x: float) -> None:
    """I_x(a, b) = I_x(a + 1, b) + x^a (1 - x)^b / (a B(a, b)), Abramowitz and Stegun 26.5.16."""
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    step = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    assert incomplete_beta(a, b, x) == pytest.approx(incomplete_beta(a + 1, b, x) + step, abs=1e-9)
    assert incomplete_beta(a, b, x) == pytest.approx(1 - incomplete_beta(b, a, 1 - x), abs=1e-9)
