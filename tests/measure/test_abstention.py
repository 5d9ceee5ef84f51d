import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulations import simulation

from harken.measure.abstention import (
    accuracy_at,
    guarantee,
    lowest_max_error,
    risk_coverage,
    threshold_for,
)
from harken.measure.interval import share
from harken.measure.paired import comparable
from harken.measure.scored_answers import ScoredAnswers

SIX = ScoredAnswers([0.5, 0.9, 0.7, 0.4, 0.8, 0.6], [True, True, False, False, True, True])
TIED = ScoredAnswers([0.5, 0.9, 0.5, 0.5], [True, True, False, True])

# Few different confidences, so that many are equal.
ANSWERS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.7, 0.9, 1.0]), st.booleans()),
    min_size=1,
    max_size=31,
)


@pytest.mark.parametrize(
    ("scored", "thresholds", "answered", "wrong"),
    [
        (SIX, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 1, 2]),
        (TIED, [0.9, 0.5], [1, 4], [0, 1]),  # equal confidences are answered together
    ],
)
def test_the_curve_by_hand(
    scored: ScoredAnswers, thresholds: list[float], answered: list[int], wrong: list[int]
) -> None:
    curve = risk_coverage(scored)
    assert curve.thresholds.tolist() == thresholds
    assert (curve.answered.tolist(), curve.wrong.tolist()) == (answered, wrong)
    np.testing.assert_allclose(curve.coverage, np.array(answered) / len(scored))
    np.testing.assert_allclose(curve.risk, np.array(wrong) / answered)


def lucky(count: int) -> ScoredAnswers:
    """All right, no two equally sure; the threshold of all is 0.5."""
    return ScoredAnswers([0.5 + at / 1000 for at in range(count)], [True] * count)


def test_a_few_lucky_answers_support_nothing() -> None:
    """Without an error among the half but one, by hand: 0.9^29 < 0.05 < 0.9^28."""
    assert threshold_for(lucky(58), 0.1) is None
    assert threshold_for(lucky(59), 0.1) == 0.5
    assert lowest_max_error(lucky(60)) == pytest.approx(1 - 0.05 ** (1 / 29))
    assert threshold_for(lucky(118), 0.05) is None
    assert threshold_for(lucky(119), 0.05) == 0.5


@given(ANSWERS, st.sampled_from([0.1, 0.25, 0.5, 0.75]))
def test_the_threshold_with_a_slow_loop(answers: list[tuple[float, bool]], rate: float) -> None:
    """Two sequences of tests, each until the binomial tail at the rate is above 5 %."""
    ranked = sorted((confidence for confidence, _ in answers), reverse=True)
    passed = []
    for start in (4, 10):
        for part in range(start, 21):
            count = next(k for k in range(1, len(answers) + 1) if 20 * k >= part * len(answers))
            above = [right for confidence, right in answers if confidence >= ranked[count - 1]]
            wrong, others = above.count(False), len(above) - 1
            tail = math.fsum(
                math.comb(others, k) * rate**k * (1 - rate) ** (others - k)
                for k in range(wrong + 1)
            )
            if wrong >= others or tail > 0.05:
                break
            passed.append(ranked[count - 1])
    scored = ScoredAnswers(*zip(*answers, strict=True))
    assert threshold_for(scored, rate) == min(passed, default=None)
    assert (lowest_max_error(scored) <= rate) == bool(passed)


@pytest.mark.parametrize(
    "name",
    [
        "informative, calibrated",
        "miscalibrated, overconfident",
        "uninformative, errors 12 %",
        "uninformative, errors 10.1 %",
    ],
)
def test_the_guarantee_holds(name: str) -> None:
    """A short form of `benchmarks/abstention.py`: at most 10 % of dev sets exceed the target."""
    rows = simulation("abstention").measure(name, (162, 324), 0.1, rounds=200, seed=1, many=10**5)
    for row in rows:
        assert row.exceeded <= 0.1
    if name == "informative, calibrated":
        assert row.supported > 0.95
        assert row.answered > 0.5


@given(ANSWERS, st.sampled_from([50, 70, 90, 100]))
def test_the_surest_with_a_slow_loop(answers: list[tuple[float, bool]], percent: int) -> None:
    ranked = sorted(answers, reverse=True)
    count = next(n for n in range(1, len(answers) + 1) if 100 * n >= percent * len(answers))
    among = [right for confidence, right in answers if confidence >= ranked[count - 1][0]]
    sample = accuracy_at(ScoredAnswers(*zip(*answers, strict=True)), percent)
    assert sample.value == pytest.approx(sum(among) / len(among))
    assert sample.counts[:, 1].sum() == len(among) >= count


def test_the_interval_is_that_of_what_was_answered() -> None:
    some = ScoredAnswers([0.9] * 7 + [0.1] * 400, [True] * 7 + [False] * 400)
    assert accuracy_at(some, 1).estimate() == share([True] * 7).estimate()


def test_systems_may_choose_what_they_answer() -> None:
    other = ScoredAnswers(SIX.confidences[::-1], SIX.correct)
    assert comparable(accuracy_at(SIX, 70), accuracy_at(other, 70))


@pytest.mark.parametrize(
    ("confidences", "right", "threshold", "answered", "errors"),
    [
        (
            [*[0.8] * 45, *[0.3] * 15, 0.9, 0.8, 0.8, 0.7, 0.1],
            [*[True] * 45, *[False] * 15, True, False, True, True, False],
            *(0.8, [True] * 3 + [False] * 2, [True, False, False]),
        ),
        ([0.9] * 65, [True] * 40 + [False] * 25, None, None, None),  # not supported
        ([0.9] * 60 + [0.2] * 5, [True] * 65, 0.9, [False] * 5, None),  # nothing is answered
    ],
)
def test_a_guarantee_by_hand(
    confidences: list[float], right: list[bool], threshold: Any, answered: Any, errors: Any
) -> None:
    """Chosen on the first 60 answers, measured on the other five."""
    result = guarantee(ScoredAnswers(confidences, right), list(range(60)), 0.1)
    assert (result.threshold, result.chosen_on, result.n) == (threshold, 60, 5)
    assert result.coverage == (answered and share(answered).estimate())
    assert result.error == (errors and share(errors, "error").estimate())
