"""A metric with its 95 % interval, from what was counted in every example.

A metric is a function of sums over examples: right and counted for a share, nats and tokens for a
perplexity, matches of each order for BLEU. A `Sample` keeps the counts of every example. Examples
are whatever is independent of the rest: sentences, not words.

    proportion   independent examples, each right or wrong: Clopper-Pearson
    other        leave-one-out jackknife of g(metric), g = log, or logit where there is a largest
                 value: g(metric) +- t se, mapped back (Efron, The Jackknife, 1982)
    ordered      the same over blocks of a text, since neighbors are correlated (batch means)

The jackknife evaluates the metric once for every example, so that an interval costs no resampling.
The degrees of freedom of t are reduced where few examples decide: by their sizes (Kish) and by the
kurtosis of their influence (Satterthwaite). There is no interval of fewer than two examples, or of
examples that do not differ. `benchmarks/coverage.py` measures how often the truth lies inside.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from harken.measure.quantiles import lower_bound, t_quantile, upper_bound

TAIL = 0.025  # beyond either end of an interval
MIN_BLOCKS, MAX_BLOCKS = 6, 30  # of a text
BLOCK = 15  # autocorrelation times in a block, where the text is long enough for it
MIN_PIECES = 100  # of a text; the autocorrelation of fewer cannot be estimated

Unit = Literal["share", "error", "points", "nats", "bits", "perplexity", "seconds"]
SHARES = ("share", "error")  # shown in per cent; an error rate should be small
LOWER_IS_BETTER = ("error", "nats", "bits", "perplexity", "seconds")
FINE = ("nats", "bits", "seconds")  # three decimals matter
UNDEFINED = "n/a"

Counts = Float[np.ndarray, "examples parts"]
Values = Float[np.ndarray, "values"]
Figure = Callable[[Float[np.ndarray, "rows parts"]], Float[np.ndarray, "rows"]]
Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its 95 % interval; None where they are undefined.

    Shares and errors are 0..1, points 0..100. `n` counts what the value is an average over, such as
    words; of a metric that is no average, such as BLEU, the examples.
    """

    value: float | None
    low: float | None
    high: float | None
    unit: Unit = "share"
    n: int | None = None


def shown(value: float | None, unit: Unit) -> str:
    """A value as text, without the name of its unit."""
    if value is None:
        return UNDEFINED
    if unit in SHARES:
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if unit in FINE else f"{value:.1f}"


def shown_interval(estimate: Estimate) -> str:
    """Both ends as text."""
    if estimate.low is None or estimate.high is None:
        return UNDEFINED
    return f"{shown(estimate.low, estimate.unit)} - {shown(estimate.high, estimate.unit)}"


def signed(value: float, unit: Unit) -> str:
    """A difference of two values, without its unit; that of shares is in points of a hundred."""
    decimals = 3 if unit in FINE else 1
    rounded = round(100 * value if unit in SHARES else value, decimals)
    return f"{rounded + 0.0:+.{decimals}f}"  # never -0.0


def signed_interval(low: float | None, high: float | None, unit: Unit) -> str:
    """Both ends of the interval of a difference as text."""
    if low is None or high is None:
        return UNDEFINED
    return f"{signed(low, unit)} to {signed(high, unit)}"


class Link(NamedTuple):
    """A scale without ends, on which a metric is closer to normal than on its own."""

    forward: Callable[[Values], Values]
    inverse: Callable[[float], float]
    slope: Callable[[float], float]  # of `forward`
    top: float | None = None  # the largest value of the metric


def logit_link(top: float) -> Link:
    """For metrics from 0 to `top`."""
    return Link(
        forward=lambda values: np.log(values) - np.log(top - values),
        inverse=lambda scaled: top / (1 + math.exp(-scaled)),
        slope=lambda value: top / (value * (top - value)),
        top=top,
    )


LOG = Link(np.log, math.exp, lambda value: 1 / value)
LOG_LOG = Link(  # for exp of a metric whose link is LOG
    lambda values: np.log(np.log(values)),
    lambda scaled: math.exp(math.exp(scaled)),
    lambda value: 1 / (value * math.log(value)),
)
LOGIT, LOGIT_POINTS = logit_link(1.0), logit_link(100.0)


def ratio(sums: Float[np.ndarray, "rows parts"]) -> Float[np.ndarray, "rows"]:
    """The first sum over the second; NaN where nothing was counted."""
    undefined = np.full(len(sums), np.nan)
    means: np.ndarray = np.divide(sums[:, 0], sums[:, 1], out=undefined, where=sums[:, 1] > 0)
    return means


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """What a metric is made of: counts of every example, and the metric as function of their sums.

    The last part of the counts is what the metric is an average over, unless `averaged` is false.
    """

    counts: Counts
    figure: Figure = ratio
    unit: Unit = "share"
    link: Link = LOG
    proportion: bool = False  # of independent examples, in each of which 0 or 1 of 1 is counted
    ordered: bool = False  # examples follow each other in one text
    averaged: bool = True
    chosen: bool = False  # what is counted, in the last part, is the system's own choice

    @property
    def value(self) -> float:
        """NaN where it is undefined."""
        return float(self.figure(self.counts.sum(axis=0, keepdims=True))[0])

    @property
    def n(self) -> int:
        """See `Estimate`."""
        return round(float(self.counts[:, -1].sum())) if self.averaged else len(self.counts)

    def estimate(self) -> Estimate:
        """The value on all examples, and its interval."""
        value, (low, high) = self.value, self.interval()
        return Estimate(value if math.isfinite(value) else None, low, high, self.unit, self.n)

    def interval(self) -> Ends:
        """Both ends of the 95 % interval, or neither."""
        counts, value = self.counts[self.counts.any(axis=1)], self.value
        if self.proportion and len(counts) > 1:
            right, counted = counts.sum(axis=0)
            return lower_bound(right, counted, TAIL), upper_bound(right, counted, TAIL)
        if self.ordered:
            counts = block_sums(counts, leave_one_out(self.figure, counts))
        if len(counts) < 2 or not math.isfinite(value):
            return None, None
        end = self._at_the_end(value, len(counts))
        return self._jackknife(counts, value) if end is None else end

    def _at_the_end(self, value: float, examples: int) -> Ends | None:
        """The interval of the least or largest value, from which no example differs.

        At most this share of all examples does, and may do so by the whole scale.
        """
        top = self.link.top or (1.0 if self.unit in SHARES else None)
        if top is None:
            return None
        bound = top * upper_bound(0, examples, TAIL)
        if value <= 1e-12 * top:
            return 0.0, bound
        if self.link.top and value >= (1 - 1e-12) * top:
            return top - bound, top
        return None

    def _jackknife(self, counts: Counts, value: float) -> Ends:
        without = leave_one_out(self.figure, counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = float(self.link.forward(np.array([value]))[0])
            scaled = self.link.forward(without)
        if not math.isfinite(middle):
            return None, None
        if not np.isfinite(scaled).all():
            # One example holds all that is wrong, or all that is right: the rest has no logarithm.
            scaled = self.link.slope(value) * without
        spread = jackknife_error(scaled)
        if spread < 1e-12:
            return None, None
        reach = spread * t_quantile(freedom(scaled, counts[:, -1:] if self.averaged else counts))
        try:
            return self.link.inverse(middle - reach), self.link.inverse(middle + reach)
        except OverflowError:
            return None, None


def leave_one_out(figure: Figure, counts: Counts) -> Values:
    """The metric without each of the examples in turn."""
    return figure(counts.sum(axis=0) - counts)


def jackknife_error(without: Values) -> float:
    """The standard error of a metric from its values without each example."""
    return math.sqrt((len(without) - 1) * float(without.var()))


def freedom(without: Values, sizes: Counts) -> float:
    """Degrees of freedom of t, at least one.

    n examples of equal size have n - 1. Of unequal ones n is 1 / (sum of squared shares), where the
    sum is a mean over all parts and 1 for a part that counts nothing. Where few examples decide,
    the kurtosis k of their influence lowers it to 2n / (k - 1).
    """
    totals = sizes.sum(axis=0)
    shares = np.divide(sizes, totals, out=np.zeros_like(sizes), where=totals > 0)
    squares = float(np.where(totals > 0, (shares**2).sum(axis=0), 1.0).mean())
    influence = without - without.mean()
    kurtosis = float((influence**4).mean() / influence.var() ** 2)
    return max(1.0, min(1 / squares - 1, 2 * len(without) / max(kurtosis - 1, 1e-9)))


def block_sums(counts: Counts, without: Values) -> Counts:
    """Sums over blocks of a text that are long against the autocorrelation of its pieces.

    A text of fewer than `MIN_PIECES` is a single block.
    """
    if len(counts) < MIN_PIECES:
        whole: np.ndarray = counts.sum(axis=0, keepdims=True)
        return whole
    blocks = int(len(counts) / (BLOCK * autocorrelation_time(without)))
    blocks = min(max(blocks, MIN_BLOCKS), MAX_BLOCKS)
    starts = np.arange(blocks) * len(counts) // blocks
    sums: np.ndarray = np.add.reduceat(counts, starts, axis=0)
    return sums


def autocorrelation_time(values: Values) -> float:
    """1 + 2 sum over lags of the autocorrelation, up to five times itself (Sokal, 1989)."""
    centered = values - values.mean()
    if not centered.any():
        return 1.0
    spectrum = np.fft.rfft(centered, 2 * len(values))
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: len(values)]
    times = 2 * np.cumsum(correlation / correlation[0]) - 1
    window = int(np.argmax(np.arange(len(times)) >= 5 * times))
    return max(1.0, float(times[window]))


def share(outcomes: Sequence[bool], unit: Unit = "share") -> Sample:
    """The share of true outcomes, each independent of the others."""
    right = np.asarray(outcomes, dtype=np.float64)
    counts = np.stack((right, np.ones_like(right)), axis=1)
    return Sample(counts=counts, unit=unit, link=LOGIT, proportion=True)


def share_within(right: Sequence[int], counted: Sequence[int]) -> Sample:
    """The share of what was right in all examples together, such as words of sentences."""
    counts = np.stack((np.asarray(right), np.asarray(counted)), axis=1).astype(np.float64)
    return Sample(counts=counts, link=LOGIT)
