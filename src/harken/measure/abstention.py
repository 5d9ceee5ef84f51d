"""Selective prediction: risk and coverage, and thresholds with a guaranteed error rate.

    coverage  =  answered / all           risk  =  wrong among answered / answered

The model answers where its confidence is at least a threshold. `threshold_for` chooses the
threshold on n dev examples such that, with probability at least 90 % over the random draw of these
examples, the error rate among answered questions from the same distribution is at most `max_error`:
Learn then Test (Angelopoulos et al., 2021) with fixed-sequence testing. Each test bounds the error
rate of the k most confident answers (Clopper-Pearson); k grows by n/20 while the bound is at most
`max_error`. There are two sequences of tests, each at level 5 %: one starts at k = n/5, for models
that know few answers, the other at k = n/2, for models that know most.

The guarantee holds if the risk rises with coverage where it crosses `max_error`, or if
confidence carries no information; `benchmarks/abstention.py` measures other cases. If all answers
are right, a `max_error` of 10 % needs 59 dev examples, and 5 % needs 119.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from harken.measure.interval import Estimate, Sample, share
from harken.measure.quantiles import upper_bound
from harken.measure.scored_answers import ScoredAnswers

PROBABILITY = 0.9  # that a guarantee holds, over the random draw of the dev set
STEPS = 20  # step s tests the s n / 20 most confident answers
STARTS = (4, 10)  # first step of each sequence of tests


class RiskCoverage(NamedTuple):
    """Counts and shares of answers at each threshold, from the highest confidence to the lowest."""

    thresholds: Float[np.ndarray, "thresholds"]
    answered: Int[np.ndarray, "thresholds"]  # number of answers with at least this confidence
    wrong: Int[np.ndarray, "thresholds"]
    coverage: Float[np.ndarray, "thresholds"]
    risk: Float[np.ndarray, "thresholds"]


def risk_coverage(scored: ScoredAnswers) -> RiskCoverage:
    """Return the risk-coverage curve; there must be at least one answer."""
    thresholds, member = np.unique(-scored.confidences, return_inverse=True)
    answered = np.cumsum(np.bincount(member))
    wrong = np.cumsum(np.bincount(member, weights=~scored.correct)).astype(np.int64)
    return RiskCoverage(-thresholds, answered, wrong, answered / answered[-1], wrong / answered)


def candidate_sequences(scored: ScoredAnswers) -> list[list[tuple[float, float]]]:
    """Return (threshold, upper bound of its risk) in the order of the tests, for each start."""
    curve, n = risk_coverage(scored), len(scored)
    candidates = []
    for step in range(1, STEPS + 1):
        index = int(np.searchsorted(curve.answered, -(-step * n // STEPS)))
        # The answer that defines the threshold is not an independent draw, so it is not a trial;
        # if it is wrong, it counts as an error.
        wrong, trials = int(curve.wrong[index]), int(curve.answered[index]) - 1
        alpha = (1 - PROBABILITY) / len(STARTS)
        bound = upper_bound(wrong, trials, alpha) if wrong < trials else 1.0
        candidates.append((float(curve.thresholds[index]), bound))
    return [candidates[start - 1 :] for start in STARTS]


def threshold_for(scored: ScoredAnswers, max_error: float) -> float | None:
    """Return the lowest confidence to answer at; None if the examples support no guarantee."""
    passed = [
        threshold
        for tests in candidate_sequences(scored)
        for threshold, _ in takewhile(lambda test: test[1] <= max_error, tests)
    ]
    return min(passed, default=None)


def lowest_max_error(scored: ScoredAnswers) -> float:
    """Return the lowest error rate that these dev examples can guarantee."""
    return min(tests[0][1] for tests in candidate_sequences(scored))


def accuracy_at(scored: ScoredAnswers, percent: int) -> Sample:
    """Return the accuracy of the most confident `percent` % of the answers, ties included."""
    count = -(-percent * len(scored) // 100)
    threshold = np.sort(scored.confidences)[len(scored) - count]
    return share(scored.correct, answered=scored.confidences >= threshold)


@dataclass(frozen=True, kw_only=True, slots=True)
class RiskGuarantee:
    """A threshold chosen on some questions, and its coverage and error rate on `n` others."""

    max_error: float
    threshold: float | None  # None if the questions support no guarantee
    chosen_on: int  # number of questions
    n: int
    coverage: Estimate | None  # None without a threshold
    error: Estimate | None  # None without a threshold or if nothing was answered


def guarantee(scored: ScoredAnswers, dev: Sequence[int], max_error: float) -> RiskGuarantee:
    """Choose the threshold on the answers with indices `dev`, and measure it on all others."""
    measured = scored.at(np.setdiff1d(np.arange(len(scored)), dev).tolist())
    threshold = threshold_for(scored.at(dev), max_error)
    coverage = error = None
    if threshold is not None:
        answered = measured.confidences >= threshold
        coverage = share(answered).estimate()
        if answered.any():
            error = share(~measured.correct, "error", answered).estimate()
    return RiskGuarantee(
        max_error=max_error,
        threshold=threshold,
        chosen_on=len(dev),
        n=len(measured),
        coverage=coverage,
        error=error,
    )


def guarantee_text(max_error: float) -> str:
    """Return a guarantee as text."""
    return (
        f"with probability at least {100 * PROBABILITY:g} % over the random draw of the dev set, "
        f"the error rate among answered questions is at most {100 * max_error:g} %"
    )
