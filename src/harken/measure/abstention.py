"""Answering only where the model is confident: risk and coverage, and a guaranteed error rate.

Answers are given from the most confident down to a threshold t:

    coverage  =  answered / all           risk  =  wrong among the answered / answered

`threshold_for` chooses t on dev examples such that

    with probability at least 90 % over the dev set, the error rate among answered questions is at
    most `max_error`

for new questions from the same distribution. This is learn then test (Angelopoulos and others,
2021) with fixed-sequence testing. A test is about the k most confident answers. Given the
confidence of the last of them, the others are independent draws from all questions above it, so
that the true error rate exceeds their Clopper-Pearson bound at level 1 - e with a probability of at
most e. From a start that is fixed in advance, k grows by n/20 while the bound is at most
`max_error`. The last threshold that passed can be wrong only if the first k with a higher true
error rate passed, which has a probability of at most e. There are two starts, n/5 and n/2, with
e = 5 % each: the first for models that know little, the second for those that know most answers.

The guarantee is exact where the error rate of the answered rises with coverage, at least across
`max_error`, and also where confidence says nothing. `benchmarks/abstention.py` measures it there
and elsewhere. Where no start passes, the dev set does not support the guarantee: even without any
error, 59 dev examples are needed for 10 % and 119 for 5 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from harken.measure.interval import LOGIT, Estimate, Sample, Unit, share
from harken.measure.quantiles import upper_bound
from harken.measure.scored_answers import ScoredAnswers

PROBABILITY = 0.9  # over dev sets, that a guarantee holds
STEPS = 20  # of coverage
STARTS = (4, 10)  # steps at which a sequence of tests begins


class RiskCoverage(NamedTuple):
    """Answers above each distinct confidence as a threshold, from the highest down."""

    thresholds: Float[np.ndarray, "steps"]
    answered: Int[np.ndarray, "steps"]  # all at the last threshold
    wrong: Int[np.ndarray, "steps"]

    @property
    def coverage(self) -> Float[np.ndarray, "steps"]:
        shares: np.ndarray = self.answered / self.answered[-1]
        return shares

    @property
    def risk(self) -> Float[np.ndarray, "steps"]:
        shares: np.ndarray = self.wrong / self.answered
        return shares


def risk_coverage(scored: ScoredAnswers) -> RiskCoverage:
    """Return the curve of at least one answer."""
    thresholds, member = np.unique(-scored.confidences, return_inverse=True)
    return RiskCoverage(
        -thresholds,
        np.cumsum(np.bincount(member)),
        np.cumsum(np.bincount(member, weights=~scored.right)).astype(np.int64),
    )


class Candidate(NamedTuple):
    """A threshold, and an upper bound of the error rate above it."""

    threshold: float
    bound: float


def candidate_sequences(scored: ScoredAnswers) -> list[list[Candidate]]:
    """Return the thresholds of each start in the order of their tests."""
    curve, n = risk_coverage(scored), len(scored)
    candidates = []
    for part in range(1, STEPS + 1):
        step = int(np.searchsorted(curve.answered, -(-part * n // STEPS)))
        # The answer at the threshold is no independent draw: it counts only if it is wrong.
        wrong, others = int(curve.wrong[step]), int(curve.answered[step]) - 1
        error = (1 - PROBABILITY) / len(STARTS)
        bound = upper_bound(wrong, others, error) if wrong < others else 1.0
        candidates.append(Candidate(float(curve.thresholds[step]), bound))
    return [candidates[start - 1 :] for start in STARTS]


def threshold_for(scored: ScoredAnswers, max_error: float) -> float | None:
    """Return the lowest confidence to answer at; None if dev examples support no guarantee."""
    passed = [
        candidate.threshold
        for tests in candidate_sequences(scored)
        for candidate in takewhile(lambda test: test.bound <= max_error, tests)
    ]
    return min(passed, default=None)


def lowest_max_error(scored: ScoredAnswers) -> float:
    """Return the lowest error rate that these dev examples can guarantee."""
    return min(tests[0].bound for tests in candidate_sequences(scored))


def accuracy_at(scored: ScoredAnswers, percent: int) -> Sample:
    """Return the accuracy of the most confident `percent` of answers, ties included."""
    count = -(-percent * len(scored) // 100)
    threshold = np.sort(scored.confidences)[len(scored) - count]
    return _among(scored.right, scored.confidences >= threshold, "share")


def _among(
    outcomes: Bool[np.ndarray, "answers"], answered: Bool[np.ndarray, "answers"], unit: Unit
) -> Sample:
    """Return the share of these outcomes among the answered."""
    counts = np.stack((outcomes & answered, answered), axis=1).astype(np.float64)
    return Sample(counts=counts, unit=unit, link=LOGIT, proportion=True, chosen=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RiskGuarantee:
    """A threshold chosen on some questions, and its coverage and error rate on `n` others."""

    max_error: float
    threshold: float | None  # None if none is supported; then nothing is answered
    chosen_on: int
    n: int
    coverage: Estimate | None = None
    error: Estimate | None = None  # None if nothing was answered


def guarantee(scored: ScoredAnswers, choosing: Sequence[int], max_error: float) -> RiskGuarantee:
    """Choose the threshold on the answers at `choosing`, and measure it on all others."""
    measuring = np.setdiff1d(np.arange(len(scored)), choosing).tolist()
    threshold = threshold_for(scored.at(choosing), max_error)
    chosen = RiskGuarantee(
        max_error=max_error, threshold=threshold, chosen_on=len(choosing), n=len(measuring)
    )
    if threshold is None:
        return chosen
    measured = scored.at(measuring)
    answered = measured.confidences >= threshold
    return replace(
        chosen,
        coverage=share(answered.tolist()).estimate(),
        error=_among(~measured.right, answered, "error").estimate() if answered.any() else None,
    )


def statement(max_error: float) -> str:
    """Return a guarantee in words."""
    return (
        f"with probability at least {100 * PROBABILITY:g} % over the dev set, the error rate among "
        f"answered questions is at most {100 * max_error:g} %"
    )
