"""Expected calibration error (ECE) and reliability diagrams.

    ECE  =  sum over bins | sum of confidences - number of right answers |  /  answers

Bins have equal widths, so that the bin of an answer depends on this answer alone, as the jackknife
and paired tests need. ECE is biased upward: even if every confidence p were true, the number of
right answers in a bin would deviate from their sum by sqrt(2/pi sum p (1-p)) on average. The
interval's lower end is lowered by this bias of the bins that may be calibrated.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from harken.measure.interval import TAIL, Estimate, Interval, Sample, share
from harken.measure.quantiles import t_quantile, upper_bound
from harken.measure.scored_answers import ScoredAnswers

BINS = 15
CALIBRATED = 3.0  # deviations from zero within which a bin may be calibrated


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerGroup:
    """Accuracy and mean confidence of a group of answers."""

    name: str
    n: int
    correct: Estimate
    confidence: float


def bins_of(scored: ScoredAnswers) -> Int[np.ndarray, "answers"]:
    """Return the bin of each answer; the last bin includes 1."""
    return np.minimum((scored.confidences * BINS).astype(np.int64), BINS - 1)


def calibration_error(scored: ScoredAnswers) -> Sample:
    """Return the expected calibration error."""
    gaps = np.zeros((len(scored), BINS))
    gaps[np.arange(len(scored)), bins_of(scored)] = scored.confidences - scored.correct
    counts = np.hstack((gaps, np.ones((len(scored), 1))))
    return CalibrationSample(
        counts=counts,
        metric=lambda sums: np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1],
        unit="error",
        variances=variances_by_bin(scored),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CalibrationSample(Sample):
    """A sum of absolute values, which has neither a jackknife nor a link."""

    variances: Float[np.ndarray, "bins"]  # of the sums in the bins, if calibrated

    def interval(self) -> Interval:
        n, gaps = len(self.counts), self.counts[:, :-1]
        if n < 2:
            return None, None
        sums = gaps.sum(axis=0)
        # Equal answers in a bin have no empirical variance.
        variances = np.maximum((gaps**2).sum(axis=0) - sums**2 / n, self.variances) / n**2
        deviations = np.sqrt(variances)
        near_zero = np.abs(sums) / n < CALIBRATED * deviations
        bias = math.sqrt(2 / math.pi) * float(deviations[near_zero].sum())
        reach = t_quantile(n - 1) * math.sqrt(float(variances.sum()))
        # Without a wrong answer, the bound of a proportion of 0 applies.
        above = max(reach, upper_bound(0, n, TAIL))
        return max(0.0, self.value - bias - reach), min(1.0, self.value + above)


def error_by_chance(scored: ScoredAnswers) -> float:
    """Return the expected error of a calibrated model on as many answers."""
    return float(np.sqrt(2 / np.pi * variances_by_bin(scored)).sum() / len(scored))


def variances_by_bin(scored: ScoredAnswers) -> Float[np.ndarray, "bins"]:
    """Return the sum of p (1 - p) in each bin."""
    variances = scored.confidences * (1 - scored.confidences)
    return np.bincount(bins_of(scored), weights=variances, minlength=BINS)


def reliability(scored: ScoredAnswers) -> list[AnswerGroup]:
    """Return the bins with answers, in the order of confidence."""
    return group_answers(scored, bins_of(scored).tolist(), dict.fromkeys(range(BINS), ""))


def group_answers(
    scored: ScoredAnswers, numbers: Sequence[int], names: Mapping[int, str]
) -> list[AnswerGroup]:
    """Group answers by number; `names` has the groups by their smallest numbers, ascending."""
    indices, groups = np.searchsorted(list(names), numbers, side="right") - 1, []
    for index, name in enumerate(names.values()):
        group = scored.at(np.flatnonzero(indices == index).tolist())
        if len(group):
            right, confidence = share(group.correct).estimate(), group.confidences.mean()
            groups.append(
                AnswerGroup(name=name, n=len(group), correct=right, confidence=float(confidence))
            )
    return groups
