"""A figure with its 95 % interval, by resampling the examples that it was measured on.

A figure is a function of sums over examples: right and counted for a share, nats and tokens for a
perplexity, matches of each order for BLEU. So a sample keeps the counts of every example; a
resample weighs them, sums them and asks for the figure again. Examples are whatever is independent
of the rest: sentences, not words.

Where all outcomes of a share are equal, resampling cannot tell that others were possible and would
give an interval of no width; there, and only there, Wilson's interval for a proportion is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000
TOGETHER = 1 << 22  # numbers drawn at once: 32 MiB
Z = 1.959964  # of the normal distribution at 97.5 %

Unit = Literal["share", "error", "points", "nats", "bits", "perplexity", "seconds"]
SHARES = ("share", "error")  # parts of a whole; an error is one that should be small
LOWER_IS_BETTER = ("error", "nats", "bits", "perplexity", "seconds")
FINE = ("nats", "bits", "seconds")  # three decimals matter

Counts = Float[np.ndarray, "examples parts"]
Figure = Callable[[Float[np.ndarray, "resamples parts"]], Float[np.ndarray, "resamples"]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its 95 % interval; shares and errors are 0..1, points 0..100."""

    value: float
    low: float
    high: float
    unit: Unit = "share"


def shown(value: float, unit: Unit) -> str:
    """A figure as a person reads it; names of units stand with the metric."""
    if unit in SHARES:
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if unit in FINE else f"{value:.1f}"


def signed(value: float, unit: Unit) -> str:
    """A difference of two figures, without its unit; that of shares is in points of a hundred."""
    decimals = 3 if unit in FINE else 1
    rounded = round(100 * value if unit in SHARES else value, decimals)
    return f"{rounded + 0.0:+.{decimals}f}"  # never -0.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """What a figure is made of: counts of every example, and the figure of their sums."""

    counts: Counts
    figure: Figure
    unit: Unit = "share"
    chosen: bool = False  # what is counted, in the last part, is the system's own choice

    @property
    def value(self) -> float:
        return float(self.figure(self.counts.sum(axis=0, keepdims=True))[0])

    def estimate(self, seed: int = 0) -> Estimate:
        """The value on all examples, and its interval."""
        assert len(self.counts) > 0, "a figure of nothing has no value"
        value = self.value
        if self.unit in SHARES and value in (0.0, 1.0):
            return wilson(value, int((self.counts[:, -1] > 0).sum()), self.unit)
        figures = self.figure(resampled_sums(self.counts, seed))
        low, high = np.quantile(figures, (0.025, 0.975))
        # A figure that chance can only make larger, as a sum of distances, may lie below them all.
        return Estimate(value, min(float(low), value), max(float(high), value), self.unit)


def resampled_sums(counts: Counts, seed: int) -> Float[np.ndarray, "resamples parts"]:
    """The sums of as many examples, drawn with return, again and again."""
    random, examples = np.random.default_rng(seed), len(counts)
    # Examples with equal counts are drawn as one kind: of a share there are only two.
    kinds, times = np.unique(counts, axis=0, return_counts=True)
    drawn = (
        random.multinomial(examples, times / examples, size=size)
        for size in portions(RESAMPLES, len(kinds))
    )
    return np.concatenate([one @ kinds for one in drawn])


def portions(rows: int, columns: int) -> list[int]:
    """How many rows to draw at a time, so that memory stays bounded."""
    some = max(1, TOGETHER // columns)
    return [min(some, rows - start) for start in range(0, rows, some)]


def ratio(sums: Float[np.ndarray, "resamples parts"]) -> Float[np.ndarray, "resamples"]:
    """The first sum over the second; none of none is none."""
    shares: np.ndarray = np.divide(
        sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] > 0
    )
    return shares


def share(outcomes: Sequence[bool], unit: Unit = "share") -> Sample:
    """The share of true outcomes, each independent of the others."""
    right = np.asarray(outcomes, dtype=np.float64)
    return Sample(counts=np.stack((right, np.ones_like(right)), axis=1), figure=ratio, unit=unit)


def share_within(right: Sequence[int], counted: Sequence[int]) -> Sample:
    """The share of what was right in all examples together, such as words of sentences."""
    counts = np.stack((np.asarray(right), np.asarray(counted)), axis=1).astype(np.float64)
    return Sample(counts=counts, figure=ratio)


def wilson(share: float, count: int, unit: Unit = "share") -> Estimate:
    """The interval of a proportion that is none or all; of nothing it is everything."""
    centre = (count * share + Z**2 / 2) / (count + Z**2)
    spread = Z / (count + Z**2) * (count * share * (1 - share) + Z**2 / 4) ** 0.5
    # At the ends of the scale the formula is exact but for rounding.
    low = 0.0 if share == 0.0 else centre - spread
    high = 1.0 if share == 1.0 else centre + spread
    return Estimate(share, low, high, unit)
