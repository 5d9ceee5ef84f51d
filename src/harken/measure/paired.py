"""Paired comparison of two systems on the same examples.

    difference   metric of the second - metric of the first
    interval     95 %: difference +- t se, by the jackknife over examples with both systems' counts
    p            approximate randomization, two-sided: counts of each example are exchanged at
                 random, p = (1 + exchanges that differ by at least as much) / (1 + exchanges)

Pieces of one text are first combined into blocks, since neighbors are correlated. If no example
changes the difference, the half-width for a bounded metric is the Clopper-Pearson bound for 0 of n.
`holm` corrects the p values of several comparisons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from harken.measure.interval import (
    LOWER_IS_BETTER,
    TAIL,
    Interval,
    Sample,
    Unit,
    Values,
    block_sums,
    jackknife_half_width,
    leave_one_out,
)
from harken.measure.quantiles import upper_bound

EXCHANGES = 10_000
MAX_DRAWS = 1 << 22  # at a time: 32 MiB
SIGNIFICANT = 0.05  # p below which a difference is significant


@dataclass(frozen=True, slots=True)
class Difference:
    """Second minus first, its interval (None where undefined), and p."""

    value: float
    low: float | None
    high: float | None
    p: float
    unit: Unit

    @property
    def improves(self) -> bool | None:
        """Whether the second is better; None if the difference is not significant."""
        if self.p >= SIGNIFICANT:
            return None
        return (self.value < 0) == (self.unit in LOWER_IS_BETTER)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values that bound the probability of any false positive among all tests.

    With m tests, the i-th smallest p value is multiplied by m + 1 - i. It is at least the one
    before it, and at most 1 (Holm, 1979).
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    ranked = sorted(range(len(p_values)), key=p_values.__getitem__)
    for remaining, index in zip(range(len(p_values), 0, -1), ranked, strict=True):
        largest = max(largest, min(1.0, remaining * p_values[index]))
        corrected[index] = largest
    return corrected


def comparable(first: Sample, second: Sample) -> bool:
    """Whether both have a value and count the same units in the same examples."""
    if first.unit != second.unit or first.counts.shape != second.counts.shape:
        return False
    if not math.isfinite(first.value) or not math.isfinite(second.value):
        return False
    # Averages over other units, such as tokens of two vocabularies, are different metrics.
    counted = first.counts[:, -1] == second.counts[:, -1]
    return not first.averaged or first.selective or bool(counted.all())


def difference(first: Sample, second: Sample, seed: int = 0) -> Difference:
    """Compare two samples over the same examples in the same order."""
    assert comparable(first, second), (first.unit, second.unit)
    if first.counts.tobytes() > second.counts.tobytes():
        # Use the same draws in either order, so that swapping the systems mirrors the result.
        # 0.0 - x instead of -x avoids -0.0.
        mirrored = difference(second, first, seed)
        low, high = (None if end is None else 0.0 - end for end in (mirrored.high, mirrored.low))
        return replace(mirrored, value=0.0 - mirrored.value, low=low, high=high)
    value = second.value - first.value
    if first.ordered:
        counts = np.hstack((first.counts, second.counts))
        blocks = np.hsplit(block_sums(counts, _replicates(first, second)), 2)
        first, second = replace(first, counts=blocks[0]), replace(second, counts=blocks[1])
    # The tolerance allows for rounding. Exchanges with an undefined metric count as extreme.
    differences = np.abs(exchanged_differences(first, second, seed))
    extreme = ~(differences < (1 - 1e-9) * abs(value))
    p = (1 + int(extreme.sum())) / (1 + EXCHANGES)
    return Difference(value, *_interval(first, second, value), p, first.unit)


def _replicates(first: Sample, second: Sample) -> Values:
    replicates = [leave_one_out(sample.metric, sample.counts) for sample in (first, second)]
    differences: np.ndarray = replicates[1] - replicates[0]
    return differences


def _interval(first: Sample, second: Sample, value: float) -> Interval:
    used = first.counts.any(axis=1) | second.counts.any(axis=1)
    first, second = (replace(sample, counts=sample.counts[used]) for sample in (first, second))
    examples, top = len(first.counts), first.link.top
    if examples < 2:
        return None, None
    counts = np.hstack((first.counts, second.counts))
    # The last column of each system is its denominator.
    sizes = counts[:, [first.counts.shape[1] - 1, -1]] if first.averaged else counts
    half_width = jackknife_half_width(_replicates(first, second), sizes)
    if half_width == 0 and top is not None:
        half_width = top * upper_bound(0, examples, TAIL)
    if not half_width > 0:
        return None, None
    limit = math.inf if top is None else top
    return max(value - half_width, -limit), min(value + half_width, limit)


def exchanged_differences(
    first: Sample, second: Sample, seed: int
) -> Float[np.ndarray, "exchanges"]:
    """Return the differences after random exchanges of each example's counts."""
    rng = np.random.default_rng(seed)
    # Of the examples with equal gains, a binomial number is exchanged.
    gains, examples = np.unique(second.counts - first.counts, axis=0, return_counts=True)
    rows = max(1, MAX_DRAWS // len(gains))  # at a time, so that memory stays bounded
    sizes = [min(rows, EXCHANGES - start) for start in range(0, EXCHANGES, rows)]
    moved = np.concatenate(
        [rng.binomial(examples, 0.5, size=(size, len(examples))) @ gains for size in sizes]
    )
    first_sums, second_sums = first.counts.sum(axis=0), second.counts.sum(axis=0)
    differences: np.ndarray = second.metric(second_sums - moved) - first.metric(first_sums + moved)
    return differences
