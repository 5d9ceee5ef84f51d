"""Metrics of K seeds of one recipe on the same n examples, and differences of such groups.

    value       mean of the metric over the seeds
    std         standard deviation over the seeds, with K - 1 in the denominator
    interval    95 %: g(value) +- t se, mapped back by the metric's link g, with
                se^2 = se_seeds^2 + se_examples^2, two jackknives of g(value):
                se_seeds^2    = (K - 1)/K * sum over seeds (replicate without it - their mean)^2
                se_examples^2 = (n - 1)/n * sum over examples (the same)
    t           quantile of Student's t with se^4 / (se_seeds^4 / (K - 1) + se_examples^4 / df)
                degrees of freedom (Welch, Satterthwaite); df is that of `interval`

The variation that depends on both seed and example is in both terms. If every seed has examples of
its own, se_seeds includes their variation and is used alone.

The difference of two groups is that of their values, paired over examples: its replicates without
an example leave it out of both groups, and se^2 has a term for the seeds of each. p is that of
Student's t for difference / se. Two single runs are compared by `paired.difference`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from harken.measure.interval import (
    TAIL,
    Estimate,
    Interval,
    Sample,
    Values,
    block_sums,
    jackknife_error,
    leave_one_out,
)
from harken.measure.paired import Difference, comparable, difference
from harken.measure.quantiles import t_quantile, t_tail, upper_bound

StandardError = tuple[float, float]  # with its degrees of freedom


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedEstimate(Estimate):
    """The mean of a metric over seeds, with an interval over seeds and examples."""

    std: float | None  # over the seeds
    values: Sequence[float | None]  # of each seed


def mean_estimates(
    evaluations: Sequence[Mapping[str, Sample]], same_examples: bool = True
) -> dict[str, SeedEstimate]:
    """Return the means of the metrics that all seeds have, from the samples of each seed."""
    names = [name for name in evaluations[0] if all(name in samples for samples in evaluations)]
    return {
        name: mean_estimate([samples[name] for samples in evaluations], same_examples)
        for name in names
    }


def mean_estimate(samples: Sequence[Sample], same_examples: bool = True) -> SeedEstimate:
    """Return the mean over two or more seeds."""
    first, values = samples[0], [sample.value for sample in samples]
    n = first.estimate().n
    if not all(map(math.isfinite, values)):
        listed = [value if math.isfinite(value) else None for value in values]
        return SeedEstimate(None, None, None, first.unit, n, std=None, values=listed)
    same_examples = same_examples and len({len(sample.counts) for sample in samples}) == 1
    joint = _joint(samples) if same_examples else None
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1))
    low, high = _interval(first, np.array(values), joint)
    return SeedEstimate(mean, low, high, first.unit, n, std=std, values=values)


def group_comparable(first: Sequence[Sample], second: Sequence[Sample]) -> bool:
    """Whether all seeds of both groups measure the same on the same examples."""
    return all(comparable(first[0], sample) for sample in (*first[1:], *second))


def group_difference(first: Sequence[Sample], second: Sequence[Sample]) -> Difference:
    """Compare the means of two groups of seeds, of which one may be a single run."""
    assert group_comparable(first, second)
    if len(first) == len(second) == 1:
        return difference(first[0], second[0])
    groups = _joint(first), _joint(second)
    value, unit, top = groups[1].value - groups[0].value, groups[0].unit, groups[0].link.top
    split = groups[0].counts.shape[1]
    counts = np.hstack([group.counts for group in groups])
    counts = counts[counts.any(axis=1)]

    def replicates() -> Values:
        parts = zip(groups, np.hsplit(counts, [split]), strict=True)
        before, after = (leave_one_out(group.metric, part) for group, part in parts)
        differences: np.ndarray = after - before
        return differences

    if groups[0].ordered:
        counts = block_sums(counts, replicates())
    if len(counts) < 2:
        return Difference(value, None, None, 1.0, unit)
    sizes = counts[:, [split - 1, -1]] if groups[0].averaged else counts
    errors = [jackknife_error(replicates(), sizes)]
    errors += [_seed_error(_without_each(group)) for group in (first, second)]
    error, df = _combined(errors)
    if not error > 0:
        # No example and no seed changes the difference: it is 0, or the same in every example.
        is_equal = abs(value) < 1e-12
        bound = top * upper_bound(0, len(counts), TAIL) if top is not None else math.nan
        half_width, p = (bound, 1.0) if is_equal else (math.nan, 0.0)
    else:
        half_width, p = error * t_quantile(df), t_tail(value / error, df)
    if not half_width > 0:
        return Difference(value, None, None, p, unit)
    limit = math.inf if top is None else top
    low, high = max(value - half_width, -limit), min(value + half_width, limit)
    return Difference(value, low, high, p, unit)


def _joint(samples: Sequence[Sample]) -> Sample:
    """Return a sample with the counts of all seeds, whose metric is the mean over the seeds."""
    parts = len(samples)

    def mean_metric(sums: Float[np.ndarray, "rows parts"]) -> Float[np.ndarray, "rows"]:
        by_seed = np.hsplit(sums, parts)
        values = [sample.metric(part) for sample, part in zip(samples, by_seed, strict=True)]
        mean: np.ndarray = np.mean(values, axis=0)
        return mean

    counts = np.hstack([sample.counts for sample in samples])
    return replace(samples[0], counts=counts, metric=mean_metric, binary=parts == 1)


def _interval(first: Sample, values: Values, joint: Sample | None) -> Interval:
    """Return the interval of the mean of `values`; over the seeds alone without a joint sample."""
    link, mean = first.link, float(values.mean())
    is_extreme = link.top is not None and not 0 < mean < link.top
    with np.errstate(divide="ignore"):
        center = float(link.forward(np.array([mean]))[0])
    if is_extreme or not math.isfinite(center):
        return joint.interval() if joint is not None else (None, None)
    errors = [_seed_error(link.scaled(_without_each_value(values), mean))]
    if joint is not None:
        counts = joint.counts[joint.counts.any(axis=1)]
        if joint.ordered:
            counts = block_sums(counts, leave_one_out(joint.metric, counts))
        if len(counts) < 2:
            return None, None
        replicates = link.scaled(leave_one_out(joint.metric, counts), mean)
        sizes = counts[:, -1:] if joint.averaged else counts
        errors.append(jackknife_error(replicates, sizes))
    error, df = _combined(errors)
    if not error > 0:
        return None, None
    half_width = error * t_quantile(df)
    try:
        return link.inverse(center - half_width), link.inverse(center + half_width)
    except OverflowError:
        return None, None


def _without_each(samples: Sequence[Sample]) -> Values:
    return _without_each_value(np.array([sample.value for sample in samples]))


def _without_each_value(values: Values) -> Values:
    """Return the mean of the other values for each value; nothing for a single one."""
    others: np.ndarray = (values.sum() - values) / max(len(values) - 1, 1)
    return others if len(values) > 1 else others[:0]


def _seed_error(replicates: Values) -> StandardError:
    """Return the jackknife standard error over seeds; that of a single run is not known: 0."""
    count = len(replicates)
    return (math.sqrt((count - 1) * replicates.var()), count - 1.0) if count else (0.0, 1.0)


def _combined(errors: Iterable[StandardError]) -> StandardError:
    """Return the standard error of a sum of independent terms (Welch, Satterthwaite)."""
    terms = [(error**2, df) for error, df in errors]
    variance = sum(square for square, _ in terms)
    if not variance > 0:
        return math.sqrt(variance), 1.0
    return math.sqrt(variance), variance**2 / sum(square**2 / df for square, df in terms)
