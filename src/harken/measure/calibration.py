"""Whether confidence means what it says: of answers that are 80 % sure, 80 % should be right.

    error  =  sum over bins | sum of confidences - number of right ones |  /  answers      (ECE)

The bins are of equal width, so that the bin of an answer depends on that answer alone: counts may
then be drawn again and exchanged between systems, as intervals and tests do. (Bins with equally
many answers in each would have to be cut anew each time, and would differ from system to system.)
A bin that holds few answers weighs little.

The figure is never below zero, so chance makes it too large: even if every confidence p were true,
the number of right ones in a bin would stray from their sum, with a deviation of sqrt(sum p (1-p))
and a mean distance of sqrt(2/pi) times that. So much is to be expected of a perfect model.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from harken.measure.interval import Estimate, Sample, share
from harken.measure.judged import Judged

BINS = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """Answers of like confidence."""

    n: int
    confidence: float  # their mean
    right: Estimate


def bins_of(judged: Judged) -> Int[np.ndarray, "answers"]:
    """The bin of each answer; the last one has both its ends."""
    return np.minimum((judged.confidences * BINS).astype(np.int64), BINS - 1)


def calibration_error(judged: Judged) -> Sample:
    """How far confidence and truth are apart, over all answers; as a share of them."""
    gaps = np.zeros((len(judged), BINS))
    gaps[np.arange(len(judged)), bins_of(judged)] = judged.confidences - judged.right
    counts = np.hstack((gaps, np.ones((len(judged), 1))))
    return Sample(counts=counts, figure=_mean_gap, unit="error")


def error_by_chance(judged: Judged) -> float:
    """The error to be expected on as many answers if every confidence were true."""
    spread = judged.confidences * (1 - judged.confidences)
    in_bins = np.bincount(bins_of(judged), weights=spread, minlength=BINS)
    return float(np.sqrt(2 / np.pi * in_bins).sum() / len(judged))


def _mean_gap(sums: Float[np.ndarray, "resamples parts"]) -> Float[np.ndarray, "resamples"]:
    gaps: np.ndarray = np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1]
    return gaps


def reliability(judged: Judged) -> list[Bin]:
    """The bins that hold any answers, from the least sure to the surest."""
    member = bins_of(judged)
    found = []
    for number in np.unique(member):
        inside = judged.at(np.flatnonzero(member == number).tolist())
        found.append(
            Bin(
                n=len(inside),
                confidence=float(inside.confidences.mean()),
                right=share(inside.right.tolist()).estimate(),
            )
        )
    return found
