"""Metrics with 95 % intervals, computed from the counts of every example.

A metric is a function of sums over examples: correct and all words for an accuracy, nats and tokens
for a perplexity, matching n-grams of each order for BLEU. A `Sample` keeps the counts of every
independent example, such as a sentence.

    proportion   independent examples, each right or wrong: Clopper-Pearson
    other        leave-one-out jackknife of g(metric), where the link g is log, or logit for a
                 bounded metric: g(metric) +- t se, mapped back (Efron, The Jackknife, 1982)
    ordered      jackknife over blocks of a text, since neighbors are correlated (batch means)

The degrees of freedom of t are reduced where few examples dominate: by their sizes (Kish) and by
the kurtosis of their influence (Satterthwaite). At the smallest or largest value of a metric, the
interval is one-sided (Clopper-Pearson). There is no interval for fewer than two examples, or, in a
jackknife, if leaving out an example never changes the metric. `benchmarks/coverage.py` measures the
coverage.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from harken.measure.quantiles import lower_bound, t_quantile, upper_bound

TAIL = 0.025  # probability beyond each end of an interval
MIN_BLOCKS, MAX_BLOCKS = 6, 30  # of a text
BLOCK = 15  # length of a block in autocorrelation times, if the text is long enough
MIN_PIECES = 100  # of a text, to estimate the autocorrelation

Unit = Literal["share", "error", "points", "nats", "bits", "perplexity", "seconds"]
PERCENT_UNITS = ("share", "error")
LOWER_IS_BETTER = ("error", "nats", "bits", "perplexity", "seconds")
THREE_DECIMALS = ("nats", "bits", "seconds")
UNDEFINED = "n/a"
ACRONYMS = {
    word.lower(): word for word in ("F1", "BLEU", "chrF", "CIDEr", "WER", "CER", "AER", "CTC")
}

Counts = Float[np.ndarray, "examples parts"]  # such as (correct words, words) of each sentence
Values = Float[np.ndarray, "values"]
MetricFunction = Callable[[Float[np.ndarray, "rows parts"]], Float[np.ndarray, "rows"]]
"""Function from sums of counts, each row over a set of examples, to the metric of each set."""
Interval = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its 95 % interval; None where they are undefined."""

    value: float | None
    low: float | None
    high: float | None
    unit: Unit = "share"  # shares and errors are 0..1, points 0..100
    n: int | None = None  # denominator of an average, such as the number of words; else examples


def metric_name(key: str) -> str:
    """Return the name of a metric for readers, such as "entity F1" for entity_f1."""
    return " ".join(ACRONYMS.get(word, word) for word in key.split("_"))


def metric_title(key: str) -> str:
    """Return the name of a metric with its first letter in upper case."""
    name = metric_name(key)
    return name[:1].upper() + name[1:]


def format_value(value: float | None, unit: Unit) -> str:
    """Return a value as text, without the name of its unit."""
    if value is None:
        return UNDEFINED
    if unit in PERCENT_UNITS:
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if unit in THREE_DECIMALS else f"{value:.1f}"


def format_interval(estimate: Estimate) -> str:
    """Return the interval as text."""
    if estimate.low is None or estimate.high is None:
        return UNDEFINED
    low, high = (format_value(end, estimate.unit) for end in (estimate.low, estimate.high))
    return f"{low} - {high}"


def format_difference(value: float, unit: Unit) -> str:
    """Return a difference as text; differences of shares are in percentage points."""
    decimals = 3 if unit in THREE_DECIMALS else 1
    rounded = round(100 * value if unit in PERCENT_UNITS else value, decimals)
    return f"{rounded + 0.0:+.{decimals}f}"  # never -0.0


def format_difference_interval(low: float | None, high: float | None, unit: Unit) -> str:
    """Return the interval of a difference as text."""
    if low is None or high is None:
        return UNDEFINED
    return f"{format_difference(low, unit)} to {format_difference(high, unit)}"


class LinkFunction(NamedTuple):
    """A transform g of a metric to an unbounded scale, where it is closer to normal."""

    forward: Callable[[Values], Values]
    inverse: Callable[[float], float]
    slope: Callable[[float], float]  # of `forward`
    top: float | None = None  # the largest value of the metric

    def scaled(self, replicates: Values, value: float) -> Values:
        """Return the link of replicates of a value, up to a constant.

        The link is linearized at `value` if it is infinite for a replicate, such as an error rate
        of 0 without the only example that has errors.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = self.forward(replicates)
        return scaled if np.isfinite(scaled).all() else self.slope(value) * replicates


def logit_link(top: float) -> LinkFunction:
    """Return the link of metrics from 0 to `top`."""
    return LinkFunction(
        forward=lambda values: np.log(values) - np.log(top - values),
        inverse=lambda scaled: top / (1 + math.exp(-scaled)),
        slope=lambda value: top / (value * (top - value)),
        top=top,
    )


LOG = LinkFunction(np.log, math.exp, lambda value: 1 / value)
LOG_LOG = LinkFunction(  # for perplexity: the log of its log
    lambda values: np.log(np.log(values)),
    lambda scaled: math.exp(math.exp(scaled)),
    lambda value: 1 / (value * math.log(value)),
)
LOGIT, LOGIT_POINTS = logit_link(1.0), logit_link(100.0)


def ratio(sums: Float[np.ndarray, "rows parts"]) -> Float[np.ndarray, "rows"]:
    """Return the first sum divided by the second; NaN where the second is 0."""
    undefined = np.full(len(sums), np.nan)
    means: np.ndarray = np.divide(sums[:, 0], sums[:, 1], out=undefined, where=sums[:, 1] > 0)
    return means


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """Counts of every example, and the metric as a function of their sums."""

    counts: Counts
    metric: MetricFunction = ratio
    unit: Unit = "share"
    link: LinkFunction = LOG
    binary: bool = False  # counts are (0, 1) or (1, 1), or (0, 0) for an example that is ignored
    ordered: bool = False  # examples are consecutive pieces of one text
    averaged: bool = True  # the last column of the counts is the denominator of the metric
    # The denominator depends on the predictions: runs are compared even if it differs.
    selective: bool = False

    @property
    def value(self) -> float:
        """Return the value on all examples, NaN where it is undefined."""
        return float(self.metric(self.counts.sum(axis=0, keepdims=True))[0])

    def estimate(self) -> Estimate:
        value, (low, high) = self.value, self.interval()
        n = round(float(self.counts[:, -1].sum())) if self.averaged else len(self.counts)
        return Estimate(value if math.isfinite(value) else None, low, high, self.unit, n)

    def interval(self) -> Interval:
        """Return both ends of the 95 % interval, or None for both."""
        counts, value = self.counts[self.counts.any(axis=1)], self.value
        if self.binary and len(counts) > 1:
            right, counted = counts.sum(axis=0)
            return lower_bound(right, counted, TAIL), upper_bound(right, counted, TAIL)
        if self.ordered:
            counts = block_sums(counts, leave_one_out(self.metric, counts))
        if len(counts) < 2 or not math.isfinite(value):
            return None, None
        # The link of the smallest and of the largest possible value is infinite.
        is_bounded, top = self.link.top is not None, self.link.top or 1.0
        if value <= 1e-12 * top and (is_bounded or self.unit in PERCENT_UNITS):
            return 0.0, top * upper_bound(0, len(counts), TAIL)
        if is_bounded and value >= (1 - 1e-12) * top:
            return top - top * upper_bound(0, len(counts), TAIL), top
        return self._jackknife(counts, value)

    def _jackknife(self, counts: Counts, value: float) -> Interval:
        replicates = leave_one_out(self.metric, counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            center = float(self.link.forward(np.array([value]))[0])
        if not math.isfinite(center):
            return None, None
        scaled = self.link.scaled(replicates, value)
        half_width = jackknife_half_width(scaled, counts[:, -1:] if self.averaged else counts)
        if not half_width > 0:
            return None, None
        try:
            return self.link.inverse(center - half_width), self.link.inverse(center + half_width)
        except OverflowError:
            return None, None


def leave_one_out(metric: MetricFunction, counts: Counts) -> Values:
    """Return the jackknife replicates: the metric without each example in turn."""
    return metric(counts.sum(axis=0) - counts)


def jackknife_half_width(replicates: Values, sizes: Counts) -> float:
    """Return t times the standard error; 0 if replicates are equal, NaN if one is undefined."""
    error, degrees_of_freedom = jackknife_error(replicates, sizes)
    return error * t_quantile(degrees_of_freedom) if error > 0 else error


def jackknife_error(replicates: Values, sizes: Counts) -> tuple[float, float]:
    """Return the standard error and its degrees of freedom.

    The error is 0 if the replicates are equal, and NaN if one of them is undefined.
    """
    error = math.sqrt((len(replicates) - 1) * float(replicates.var()))
    if error < 1e-12 or math.isnan(error):
        return (error if math.isnan(error) else 0.0), 1.0
    # The effective number of examples (Kish) is 1 / (sum of squared shares, mean over columns).
    totals = sizes.sum(axis=0)
    shares = np.divide(sizes, totals, out=np.zeros_like(sizes), where=totals > 0)
    squares = float(np.where(totals > 0, (shares**2).sum(axis=0), 1.0).mean())
    influence = replicates - replicates.mean()
    kurtosis = float((influence**4).mean() / influence.var() ** 2)
    degrees_of_freedom = min(1 / squares - 1, 2 * len(replicates) / max(kurtosis - 1, 1e-9))
    return error, max(1.0, degrees_of_freedom)


def block_sums(counts: Counts, replicates: Values) -> Counts:
    """Return sums over blocks of the pieces of a text.

    If the text is long enough, a block is longer than the autocorrelation of the pieces.
    """
    if len(counts) < MIN_PIECES:  # a single block
        whole: np.ndarray = counts.sum(axis=0, keepdims=True)
        return whole
    blocks = int(len(counts) / (BLOCK * autocorrelation_time(replicates)))
    blocks = min(max(blocks, MIN_BLOCKS), MAX_BLOCKS)
    starts = np.arange(blocks) * len(counts) // blocks
    sums: np.ndarray = np.add.reduceat(counts, starts, axis=0)
    return sums


def autocorrelation_time(values: Values) -> float:
    """Return 1 + 2 Σ autocorrelation, over lags up to five times the result (Sokal, 1989)."""
    centered = values - values.mean()
    if not centered.any():
        return 1.0
    spectrum = np.fft.rfft(centered, 2 * len(values))
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: len(values)]
    times = 2 * np.cumsum(correlation / correlation[0]) - 1
    window = int(np.argmax(np.arange(len(times)) >= 5 * times))
    return max(1.0, float(times[window]))


def share(
    outcomes: ArrayLike, unit: Unit = "share", answered: Bool[np.ndarray, "examples"] | None = None
) -> Sample:
    """Return a sample whose metric is the share of true outcomes of independent examples.

    With `answered`, only these examples count.
    """
    is_true, is_selective = np.asarray(outcomes, dtype=np.bool_), answered is not None
    counted = np.ones_like(is_true) if answered is None else answered
    counts = np.stack((is_true & counted, counted), axis=1).astype(np.float64)
    return Sample(counts=counts, unit=unit, link=LOGIT, binary=True, selective=is_selective)


def clustered_share(right: Sequence[int], counted: Sequence[int]) -> Sample:
    """Return a sample whose metric is the share of correct words in examples of several words."""
    counts = np.stack((np.asarray(right), np.asarray(counted)), axis=1).astype(np.float64)
    return Sample(counts=counts, link=LOGIT)
