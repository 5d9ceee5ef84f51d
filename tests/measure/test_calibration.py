import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.calibration import (
    BINS,
    bin_indices,
    calibration_error,
    error_by_chance,
    reliability,
)
from harken.measure.interval import share
from harken.measure.scored_answers import ScoredAnswers

ANSWERS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=47)


def test_the_error_by_hand() -> None:
    # Bins 0, 7 and 14 of fifteen: |0.10 - 1| + |0.5 - 1| + |2.95 - 2| of six answers.
    scored = ScoredAnswers(
        [0.05, 0.05, 0.5, 0.96, 0.99, 1.0], [False, True, True, True, True, False]
    )
    assert bin_indices(scored).tolist() == [0, 0, 7, 14, 14, 14]
    sample = calibration_error(scored)
    assert sample.unit == "error"
    assert sample.value == pytest.approx(2.35 / 6)
    low, middle, high = reliability(scored)
    assert (low.n, middle.n, high.n) == (2, 1, 3)
    assert high.confidence == pytest.approx(2.95 / 3)
    assert high.correct == share([True, True, False]).estimate()


@pytest.mark.parametrize(("confidence", "right", "error"), [(1.0, False, 1.0), (0.0, True, 1.0)])
def test_few_answers(confidence: float, right: bool, error: float) -> None:
    estimate = calibration_error(ScoredAnswers([confidence], [right])).estimate()
    assert (estimate.value, estimate.high, estimate.unit) == (error, None, "error")
    two = calibration_error(ScoredAnswers([1.0, 1.0], [True, True])).estimate()
    assert two.value == 0 and two.high > 0.3


@given(ANSWERS)
def test_agrees_with_a_slow_loop(answers: list[tuple[float, bool]]) -> None:
    total = 0.0
    for number in range(BINS):
        inside = [
            (confidence, right)
            for confidence, right in answers
            if min(int(confidence * BINS), BINS - 1) == number
        ]
        total += abs(sum(confidence - right for confidence, right in inside))
    scored = ScoredAnswers(*map(list, zip(*answers, strict=True)))  # type: ignore[arg-type]
    estimate = calibration_error(scored).estimate()
    assert estimate.value == pytest.approx(total / len(answers))
    if len(answers) > 1:
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    groups = reliability(scored)
    assert sum(group.n for group in groups) == len(answers)
    means = [group.confidence for group in groups]
    assert means == sorted(means)


@given(ANSWERS, ANSWERS)
def test_what_an_answer_counts_depends_on_it_alone(
    first: list[tuple[float, bool]], second: list[tuple[float, bool]]
) -> None:
    """Resampling and exchanges of examples depend on it."""
    apart, other, together = (
        calibration_error(ScoredAnswers(*zip(*answers, strict=True))).counts
        for answers in (first, second, [*first, *second])
    )
    np.testing.assert_array_equal(together, np.vstack((apart, other)))


def test_chance_alone() -> None:
    random = np.random.default_rng(5)
    confidences = random.beta(3, 1, size=499)
    samples = [
        calibration_error(
            ScoredAnswers(confidences.tolist(), (random.random(499) < confidences).tolist())
        )
        for _ in range(300)
    ]
    expected = error_by_chance(ScoredAnswers(confidences.tolist(), [True] * 499))
    assert expected == pytest.approx(np.mean([sample.value for sample in samples]), rel=0.05)
    assert error_by_chance(ScoredAnswers([1.0, 0.0], [True, True])) == 0.0


def test_nan_counts_as_zero_confidence() -> None:
    scored = ScoredAnswers([float("nan"), 1.0 + 1e-7, -1e-9], [False, True, True])
    assert scored.confidences.tolist() == [0.0, 1.0, 0.0]
    assert len(scored) == 3
