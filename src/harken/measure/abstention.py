"""Saying nothing where the model is not sure enough: what that gives up, and what it can promise.

Answers are given from the surest down to a confidence t:

    coverage  =  answered / all           risk  =  wrong among the answered / answered

For a promise of at most a share r of wrong answers, t is chosen on questions whose answers are
known: it is the lowest one with

    (wrong + 1) / (answered + 1)  <=  r

The ones stand for the next question, which nobody has judged yet and which may be wrong. Without
them a single lucky answer would promise that there are no errors; with them, nothing is promised
for r = 5 % before 19 answers in a row were right. Still, the t that looks best of many is flattered
by chance, so a promise is measured on other people than it was chosen on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from harken.measure.interval import Estimate, Sample, Unit, ratio, share
from harken.measure.judged import Judged


class RiskCoverage(NamedTuple):
    """What each confidence as a threshold would do, from the surest down; equal ones are one."""

    thresholds: Float[np.ndarray, "steps"]
    answered: Int[np.ndarray, "steps"]  # the last one answers all
    wrong: Int[np.ndarray, "steps"]

    @property
    def coverage(self) -> Float[np.ndarray, "steps"]:
        shares: np.ndarray = self.answered / self.answered[-1]
        return shares

    @property
    def risk(self) -> Float[np.ndarray, "steps"]:
        shares: np.ndarray = self.wrong / self.answered
        return shares

    @property
    def promised(self) -> Float[np.ndarray, "steps"]:
        """The lowest rate that each threshold may promise."""
        shares: np.ndarray = (self.wrong + 1) / (self.answered + 1)
        return shares


def risk_coverage(judged: Judged) -> RiskCoverage:
    """Of at least one answer."""
    thresholds, member = np.unique(-judged.confidences, return_inverse=True)
    return RiskCoverage(
        -thresholds,
        np.cumsum(np.bincount(member)),
        np.cumsum(np.bincount(member, weights=~judged.right)).astype(np.int64),
    )


def threshold_for(judged: Judged, rate: float) -> float | None:
    """The confidence from which on to answer; None where no threshold keeps the promise."""
    curve = risk_coverage(judged)
    kept = np.flatnonzero(curve.promised <= rate)
    return float(curve.thresholds[kept[-1]]) if len(kept) else None


def lowest_rate(judged: Judged) -> float:
    """The best that any threshold may promise."""
    return float(risk_coverage(judged).promised.min())


def accuracy_at(judged: Judged, percent: int) -> Sample:
    """The share of right ones in the surest `percent` of answers, with all that are as sure."""
    count = -(-percent * len(judged) // 100)
    threshold = np.sort(judged.confidences)[len(judged) - count]
    return _among(judged.right, judged.confidences >= threshold, "share")


def _among(
    outcomes: Bool[np.ndarray, "answers"], answered: Bool[np.ndarray, "answers"], unit: Unit
) -> Sample:
    """The share of these outcomes in what was answered."""
    counts = np.stack((outcomes & answered, answered), axis=1).astype(np.float64)
    return Sample(counts=counts, figure=ratio, unit=unit, chosen=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """A rate of errors promised on some people, and what came of it on others."""

    rate: float
    threshold: float | None  # None where none keeps the promise; then nothing is answered
    chosen_on: int
    n: int  # answers that it was measured on
    coverage: Estimate | None = None
    error: Estimate | None = None  # None where nothing was answered


def promise(judged: Judged, choosing: Sequence[int], rate: float) -> Promise:
    """Chosen on the answers at `choosing`, measured on all others; neither may be none."""
    measuring = np.setdiff1d(np.arange(len(judged)), choosing).tolist()
    threshold = threshold_for(judged.at(choosing), rate)
    promised = Promise(rate=rate, threshold=threshold, chosen_on=len(choosing), n=len(measuring))
    if threshold is None:
        return promised
    measured = judged.at(measuring)
    answered = measured.confidences >= threshold
    return replace(
        promised,
        coverage=share(answered.tolist()).estimate(),
        error=_among(~measured.right, answered, "error").estimate() if answered.any() else None,
    )
