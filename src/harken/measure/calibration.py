"""Expected calibration error: of answers with a confidence of 80 %, 80 % should be right.

    ECE  =  sum over bins | sum of confidences - number of right answers |  /  answers

Bins have equal widths, so that the bin of an answer depends on this answer alone and intervals and
tests can leave out examples or exchange them between systems.

The error is never negative, so it is biased upward: even if every confidence p were true, the
number of right answers in a bin would deviate from their sum by sqrt(sum p (1-p)), with a mean
distance of sqrt(2/pi) times that. A calibrated model has this error, and the lower end of the
interval is lowered by this bias of the bins that may be calibrated.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from harken.measure.interval import TAIL, Ends, Estimate, Sample, share
from harken.measure.quantiles import t_quantile, upper_bound
from harken.measure.scored_answers import ScoredAnswers

BINS = 15
CALIBRATED = 3.0  # deviations from zero within which a bin may be calibrated


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """Answers of similar confidence."""

    n: int
    confidence: float  # their mean
    right: Estimate


def bins_of(scored: ScoredAnswers) -> Int[np.ndarray, "answers"]:
    """Return the bin of each answer; the last bin includes 1."""
    return np.minimum((scored.confidences * BINS).astype(np.int64), BINS - 1)


def calibration_error(scored: ScoredAnswers) -> Sample:
    """Return the expected calibration error."""
    gaps = np.zeros((len(scored), BINS))
    gaps[np.arange(len(scored)), bins_of(scored)] = scored.confidences - scored.right
    counts = np.hstack((gaps, np.ones((len(scored), 1))))
    return CalibrationSample(
        counts=counts,
        figure=lambda sums: np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1],
        unit="error",
        variances=variances_by_bin(scored),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CalibrationSample(Sample):
    """A sum of absolute values, to which neither the jackknife nor a link applies."""

    variances: Float[np.ndarray, "bins"]  # of the sums in the bins, if confidences were true

    def interval(self) -> Ends:
        n, gaps = len(self.counts), self.counts[:, :-1]
        if n < 2:
            return None, None
        sums = gaps.sum(axis=0)
        # The variance of equal answers in a bin is 0.
        variances = np.maximum((gaps**2).sum(axis=0) - sums**2 / n, self.variances) / n**2
        deviations = np.sqrt(variances)
        near_zero = np.abs(sums) / n < CALIBRATED * deviations
        bias = math.sqrt(2 / math.pi) * float(deviations[near_zero].sum())
        reach = t_quantile(n - 1) * math.sqrt(float(variances.sum()))
        # Without a wrong answer, the bound of a proportion of 0 applies.
        above = max(reach, upper_bound(0, n, TAIL))
        return max(0.0, self.value - bias - reach), min(1.0, self.value + above)


def error_by_chance(scored: ScoredAnswers) -> float:
    """Return the expected error on as many answers if every confidence were true."""
    return float(np.sqrt(2 / np.pi * variances_by_bin(scored)).sum() / len(scored))


def variances_by_bin(scored: ScoredAnswers) -> Float[np.ndarray, "bins"]:
    """Return the sum of p (1 - p) in each bin."""
    variances = scored.confidences * (1 - scored.confidences)
    return np.bincount(bins_of(scored), weights=variances, minlength=BINS)


def reliability(scored: ScoredAnswers) -> list[Bin]:
    """Return the bins that are not empty, in the order of confidence."""
    members, bins = bins_of(scored), []
    for number in np.unique(members):
        inside = scored.at(np.flatnonzero(members == number).tolist())
        right, confidence = share(inside.right.tolist()).estimate(), inside.confidences.mean()
        bins.append(Bin(n=len(inside), confidence=float(confidence), right=right))
    return bins
