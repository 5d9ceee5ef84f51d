import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.abstention import (
    accuracy_at,
    lowest_rate,
    promise,
    risk_coverage,
    threshold_for,
)
from harken.measure.interval import share
from harken.measure.judged import Judged, judge
from harken.measure.paired import comparable, difference

# (wrong + 1) / (answered + 1) from the surest on: 1/2, 1/3, 2/4, 2/5, 2/6, 3/7.
SIX = judge([0.5, 0.9, 0.7, 0.4, 0.8, 0.6], [True, True, False, False, True, True])

# Few different confidences, so that many are equal.
ANSWERS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.7, 0.9, 1.0]), st.booleans()),
    min_size=1,
    max_size=31,
)


def judged_of(answers: list[tuple[float, bool]]) -> Judged:
    return judge([confidence for confidence, _ in answers], [right for _, right in answers])


def test_the_curve_by_hand() -> None:
    curve = risk_coverage(SIX)
    assert curve.thresholds.tolist() == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    assert curve.wrong.tolist() == [0, 0, 1, 1, 1, 2]
    np.testing.assert_allclose(curve.coverage, np.arange(1, 7) / 6)
    np.testing.assert_allclose(curve.risk, [0, 0, 1 / 3, 1 / 4, 1 / 5, 1 / 3])


def test_equally_sure_answers_are_given_together() -> None:
    curve = risk_coverage(judge([0.5, 0.9, 0.5, 0.5], [True, True, False, True]))
    assert curve.thresholds.tolist() == [0.9, 0.5]
    assert curve.answered.tolist() == [1, 4]
    assert curve.wrong.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("rate", "threshold"),
    [(0.333, None), (1 / 3, 0.5), (0.34, 0.5), (0.4, 0.5), (0.43, 0.4), (0.99, 0.4)],
)
def test_the_threshold_by_hand(rate: float, threshold: float | None) -> None:
    """The lowest that fits, though 2/4 and 2/5 on the way to 2/6 do not."""
    assert threshold_for(SIX, rate) == threshold
    assert lowest_rate(SIX) == pytest.approx(1 / 3)


def test_nothing_is_promised_on_a_few_lucky_answers() -> None:
    def lucky(count: int) -> Judged:
        return judge([0.5 + at / 100 for at in range(count)], [True] * count)

    assert threshold_for(lucky(18), 0.05) is None
    assert threshold_for(lucky(19), 0.05) == 0.5
    assert threshold_for(lucky(28), 1 / 29) == 0.5  # exact, whatever 29 * (1 / 29) is


@given(ANSWERS, st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.5, 0.75]))
def test_agrees_with_trying_every_threshold(answers: list[tuple[float, bool]], rate: float) -> None:
    fitting = []
    for threshold, _ in answers:
        given_ = [right for confidence, right in answers if confidence >= threshold]
        if (given_.count(False) + 1) / (len(given_) + 1) <= rate:
            fitting.append(threshold)
    judged = judged_of(answers)
    assert threshold_for(judged, rate) == (min(fitting) if fitting else None)
    assert (lowest_rate(judged) <= rate) == bool(fitting)


@given(ANSWERS, st.sampled_from([50, 70, 90, 100]))
def test_the_surest_with_a_slow_loop(answers: list[tuple[float, bool]], percent: int) -> None:
    ranked = sorted(answers, reverse=True)
    count = next(n for n in range(1, len(answers) + 1) if 100 * n >= percent * len(answers))
    among = [right for confidence, right in answers if confidence >= ranked[count - 1][0]]
    sample = accuracy_at(judged_of(answers), percent)
    assert sample.value == pytest.approx(sum(among) / len(among))
    assert sample.counts[:, 1].sum() == len(among) >= count


def test_accuracy_at_a_coverage_by_hand() -> None:
    assert [accuracy_at(SIX, percent).value for percent in (1, 50, 51, 100)] == [
        1.0,
        pytest.approx(2 / 3),
        pytest.approx(3 / 4),
        pytest.approx(4 / 6),
    ]
    # Nobody else can be told from the third, so that five are answered.
    tied = judge([0.9, 0.8, 0.5, 0.5, 0.5, 0.1], [True, True, False, True, False, True])
    assert accuracy_at(tied, 50).value == pytest.approx(3 / 5)


def test_the_interval_is_that_of_what_was_answered() -> None:
    some = judge([0.9] * 7 + [0.1] * 400, [True] * 7 + [False] * 400)
    assert accuracy_at(some, 1).estimate() == share([True] * 7).estimate()


def test_systems_may_choose_what_they_answer() -> None:
    random = np.random.default_rng(1)
    right = [(random.random(211) < chance).tolist() for chance in (0.3, 0.8)]
    weak, strong = (accuracy_at(judge(random.random(211).tolist(), one), 70) for one in right)
    assert comparable(weak, strong)
    found = difference(weak, strong)
    assert found.value == pytest.approx(strong.value - weak.value)
    assert found.improves is True


# Chosen on the first half (indices 0 to 9), measured on the second.
CHOOSING = list(range(10))


def test_a_promise_by_hand() -> None:
    judged = judge(
        [*[0.8] * 9, 0.3, 0.9, 0.8, 0.8, 0.7, 0.1],
        [*[True] * 9, False, True, False, True, True, False],
    )
    kept = promise(judged, CHOOSING, 0.1)
    assert (kept.threshold, kept.chosen_on, kept.n) == (0.8, 10, 5)
    assert kept.coverage == share([True] * 3 + [False] * 2).estimate()
    assert kept.error is not None
    assert kept.error.value == pytest.approx(1 / 3)
    assert kept.error.unit == "error"


def test_a_promise_that_cannot_be_made() -> None:
    judged = judge([0.9] * 15, [True] * 8 + [False] * 7)
    none = promise(judged, CHOOSING, 0.1)
    assert (none.threshold, none.coverage, none.error) == (None, None, None)


def test_a_promise_that_nobody_hears() -> None:
    judged = judge([0.9] * 10 + [0.2] * 5, [True] * 15)
    silent = promise(judged, CHOOSING, 0.1)
    assert silent.threshold == 0.9
    assert silent.coverage is not None
    assert silent.coverage.value == 0.0
    assert silent.error is None


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_promises_are_kept_on_average(rate: float) -> None:
    """A model that is too sure of itself, its confidence still telling; 300 promises."""
    random = np.random.default_rng(7)
    realised = []
    for _ in range(300):
        truth = random.beta(2, 1, size=401)
        judged = judge((truth**0.3).tolist(), (random.random(401) < truth).tolist())
        made = promise(judged, list(range(200)), rate)
        if made.error is not None:
            realised.append(made.error.value)
    assert len(realised) > 50
    assert np.mean(realised) <= rate + 0.01
