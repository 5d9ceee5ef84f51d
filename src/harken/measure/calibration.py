"""Expected calibration error (ECE) and reliability diagrams.

    ECE  =  sum over bins | sum of confidences - number of right answers |  /  answers

Bins have equal widths, so that the bin of an answer depends on this answer alone, as paired tests
need. ECE is biased upward: even if answers with confidence p are right with probability p, the
number of right answers in a bin deviates from the sum of confidences by sqrt(2/pi sum p (1-p)) on
average. The lower end of the interval is reduced by this bias, summed over the bins that may be
calibrated.
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
MAX_DEVIATIONS = 3.0  # a bin whose gap is at most this many standard deviations may be calibrated


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerGroup:
    """Accuracy and mean confidence of a group of answers."""

    name: str
    n: int  # number of answers
    correct: Estimate  # share of correct answers
    confidence: float  # mean


def bin_indices(scored: ScoredAnswers) -> Int[np.ndarray, "answers"]:
    """Return the bin of each answer; the last bin includes 1."""
    return np.minimum((scored.confidences * BINS).astype(np.int64), BINS - 1)


def calibration_error(scored: ScoredAnswers) -> Sample:
    """Return the expected calibration error."""
    gaps = np.zeros((len(scored), BINS))
    gaps[np.arange(len(scored)), bin_indices(scored)] = scored.confidences - scored.correct
    counts = np.hstack((gaps, np.ones((len(scored), 1))))
    return CalibrationSample(
        counts=counts,
        metric=lambda sums: np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1],
        unit="error",
        variances=variances_by_bin(scored),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CalibrationSample(Sample):
    """Confidence - correctness of each answer, in the column of its bin.

    The interval replaces the jackknife of `Sample`, which needs a smooth metric.
    """

    variances: Float[np.ndarray, "bins"]  # sum of p (1 - p) in each bin

    def interval(self) -> Interval:
        n, gaps = len(self.counts), self.counts[:, :-1]
        if n < 2:
            return None, None
        sums = gaps.sum(axis=0)
        # If all answers of a bin are right, or all are wrong, its empirical variance is too small.
        variances = np.maximum((gaps**2).sum(axis=0) - sums**2 / n, self.variances) / n**2
        deviations = np.sqrt(variances)
        may_be_calibrated = np.abs(sums) / n < MAX_DEVIATIONS * deviations
        bias = math.sqrt(2 / math.pi) * float(deviations[may_be_calibrated].sum())
        half_width = t_quantile(n - 1) * math.sqrt(float(variances.sum()))
        # At least the Clopper-Pearson upper bound for 0 of n.
        upper_half_width = max(half_width, upper_bound(0, n, TAIL))
        return max(0.0, self.value - bias - half_width), min(1.0, self.value + upper_half_width)


def error_by_chance(scored: ScoredAnswers) -> float:
    """Return the expected ECE of a calibrated model with these confidences."""
    return float(np.sqrt(2 / np.pi * variances_by_bin(scored)).sum() / len(scored))


def variances_by_bin(scored: ScoredAnswers) -> Float[np.ndarray, "bins"]:
    """Return the sum of p (1 - p) in each bin."""
    variances = scored.confidences * (1 - scored.confidences)
    return np.bincount(bin_indices(scored), weights=variances, minlength=BINS)


def reliability(scored: ScoredAnswers) -> list[AnswerGroup]:
    """Return the bins with answers, in the order of confidence."""
    return group_answers(scored, bin_indices(scored).tolist(), dict.fromkeys(range(BINS), ""))


def group_answers(
    scored: ScoredAnswers, numbers: Sequence[int], names: Mapping[int, str]
) -> list[AnswerGroup]:
    """Group answers by an integer, such as the number of words in the name that is asked about.

    `names` maps the smallest number of each group to the name of the group, in ascending order.
    """
    indices, groups = np.searchsorted(list(names), numbers, side="right") - 1, []
    for index, name in enumerate(names.values()):
        group = scored.at(np.flatnonzero(indices == index).tolist())
        if len(group):
            right, confidence = share(group.correct).estimate(), group.confidences.mean()
            groups.append(
                AnswerGroup(name=name, n=len(group), correct=right, confidence=float(confidence))
            )
    return groups
