"""Whether confidence means what it says: of answers that are 80 % sure, 80 % should be right.

    error  =  sum over bins | sum of confidences - number of right ones |  /  answers      (ECE)

The bins are of equal width, so that the bin of an answer depends on that answer alone: counts may
then be left out and exchanged between systems, as intervals and tests do. (Bins with equally
many answers in each would have to be cut anew each time, and would differ from system to system.)
A bin that holds few answers weighs little.

The figure is never below zero, so chance makes it too large: even if every confidence p were true,
the number of right ones in a bin would stray from their sum, with a deviation of sqrt(sum p (1-p))
and a mean distance of sqrt(2/pi) times that. So much is to be expected of a perfect model, and the
interval reaches further down by this bias of the bins that may be calibrated.
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
    """Answers of like confidence."""

    n: int
    confidence: float  # their mean
    right: Estimate


def bins_of(scored: ScoredAnswers) -> Int[np.ndarray, "answers"]:
    """The bin of each answer; the last one has both its ends."""
    return np.minimum((scored.confidences * BINS).astype(np.int64), BINS - 1)


def calibration_error(scored: ScoredAnswers) -> Sample:
    """How far confidence and truth are apart, over all answers; as a share of them."""
    gaps = np.zeros((len(scored), BINS))
    gaps[np.arange(len(scored)), bins_of(scored)] = scored.confidences - scored.right
    counts = np.hstack((gaps, np.ones((len(scored), 1))))
    return CalibrationSample(
        counts=counts, figure=_mean_gap, unit="error", variances=variances_by_bin(scored)
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
        # All answers of a bin may be alike, so that their own variance is none.
        variances = np.maximum((gaps**2).sum(axis=0) - sums**2 / n, self.variances) / n**2
        deviations = np.sqrt(variances)
        near_zero = np.abs(sums) / n < CALIBRATED * deviations
        bias = math.sqrt(2 / math.pi) * float(deviations[near_zero].sum())
        reach = t_quantile(n - 1) * math.sqrt(float(variances.sum()))
        # Without a wrong answer, as many may still be wrong as a proportion of none allows.
        above = max(reach, upper_bound(0, n, TAIL))
        return max(0.0, self.value - bias - reach), min(1.0, self.value + above)


def error_by_chance(scored: ScoredAnswers) -> float:
    """The error to be expected on as many answers if every confidence were true."""
    return float(np.sqrt(2 / np.pi * variances_by_bin(scored)).sum() / len(scored))


def variances_by_bin(scored: ScoredAnswers) -> Float[np.ndarray, "bins"]:
    """Sums of p (1 - p) in each bin."""
    variances = scored.confidences * (1 - scored.confidences)
    return np.bincount(bins_of(scored), weights=variances, minlength=BINS)


def _mean_gap(sums: Float[np.ndarray, "rows parts"]) -> Float[np.ndarray, "rows"]:
    gaps: np.ndarray = np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1]
    return gaps


def reliability(scored: ScoredAnswers) -> list[Bin]:
    """The bins that hold any answers, from the least sure to the surest."""
    member = bins_of(scored)
    found = []
    for number in np.unique(member):
        inside = scored.at(np.flatnonzero(member == number).tolist())
        found.append(
            Bin(
                n=len(inside),
                confidence=float(inside.confidences.mean()),
                right=share(inside.right.tolist()).estimate(),
            )
        )
    return found
