"""Two systems on the same examples: how much a metric differs, and whether chance explains it.

    difference   metric of the second - metric of the first
    interval     95 %: difference +- t se, by the jackknife over examples with both systems' counts
    p            if the systems were alike, an example's counts could be exchanged between them:
                 p = (1 + exchanges that differ by at least as much) / (1 + exchanges), two-sided

The interval says how large the difference may be, p whether there is one (approximate
randomization). Pieces of one text are joined to blocks first, since neighbors are correlated. Where
the systems do the same in every example, the interval of a metric with a largest value says how
many examples could still differ; other metrics have none. p is not corrected for the number of
comparisons.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from harken.measure.interval import (
    LOWER_IS_BETTER,
    TAIL,
    Ends,
    Sample,
    Unit,
    block_sums,
    freedom,
    jackknife_error,
    leave_one_out,
)
from harken.measure.quantiles import t_quantile, upper_bound

EXCHANGES = 10_000
TOGETHER = 1 << 22  # numbers drawn at once: 32 MiB
SIGNIFICANT = 0.05  # below, the systems are called different


@dataclass(frozen=True, slots=True)
class Difference:
    """The second less the first, its interval (None where undefined), and p."""

    value: float
    low: float | None
    high: float | None
    p: float
    unit: Unit

    @property
    def improves(self) -> bool | None:
        """Whether the second is better; None where chance could have made the difference."""
        if self.p >= SIGNIFICANT:
            return None
        return (self.value < 0) == (self.unit in LOWER_IS_BETTER)


def comparable(first: Sample, second: Sample) -> bool:
    """Whether both have a value, the same examples, and the same count in each.

    An average has what was counted in its last part: nats per token of two vocabularies, or the
    accuracy on two lists of known words, are different metrics. Where a system chooses what it is
    measured on, the choice is part of what it does.
    """
    if first.unit != second.unit or first.counts.shape != second.counts.shape:
        return False
    if not math.isfinite(first.value) or not math.isfinite(second.value):
        return False
    counted = first.counts[:, -1] == second.counts[:, -1]
    return not first.averaged or first.chosen or bool(counted.all())


def difference(first: Sample, second: Sample, seed: int = 0) -> Difference:
    """Of two samples over the same examples in the same order."""
    assert comparable(first, second), (first.unit, second.unit)
    if first.counts.tobytes() > second.counts.tobytes():
        # The same draws whichever comes first, so that exchanged systems get the mirrored answer.
        mirrored = difference(second, first, seed)
        low, high = (None if end is None else 0.0 - end for end in (mirrored.high, mirrored.low))
        return replace(mirrored, value=0.0 - mirrored.value, low=low, high=high)
    value = second.value - first.value
    if first.ordered:
        first, second = _in_blocks(first, second)
    # A hair less: sums in another order are not equal to the last bit. An exchange after which a
    # metric is undefined counts against a difference.
    apart = np.abs(exchanged(first, second, seed))
    far = ~(apart < (1 - 1e-9) * abs(value))
    p = (1 + int(far.sum())) / (1 + EXCHANGES)
    return Difference(value, *_interval(first, second, value), p, first.unit)


def _in_blocks(first: Sample, second: Sample) -> tuple[Sample, Sample]:
    gains = _without_each(first, second)
    joined = np.hsplit(block_sums(np.hstack((first.counts, second.counts)), gains), 2)
    return replace(first, counts=joined[0]), replace(second, counts=joined[1])


def _without_each(first: Sample, second: Sample) -> Float[np.ndarray, "examples"]:
    """The difference without each of the examples in turn."""
    gains: np.ndarray = leave_one_out(second.figure, second.counts) - leave_one_out(
        first.figure, first.counts
    )
    return gains


def _interval(first: Sample, second: Sample, value: float) -> Ends:
    used = first.counts.any(axis=1) | second.counts.any(axis=1)
    first, second = (replace(sample, counts=sample.counts[used]) for sample in (first, second))
    examples, top = len(first.counts), first.link.top
    if examples < 2:
        return None, None
    gains = _without_each(first, second)
    spread = jackknife_error(gains)
    if not math.isfinite(spread):
        return None, None
    if spread < 1e-12:
        reach = None if top is None else top * upper_bound(0, examples, TAIL)
    else:
        counts = np.hstack((first.counts, second.counts))
        sizes = counts[:, [first.counts.shape[1] - 1, -1]] if first.averaged else counts
        reach = spread * t_quantile(freedom(gains, sizes))
    if reach is None:
        return None, None
    limit = math.inf if top is None else top
    return max(value - reach, -limit), min(value + reach, limit)


def exchanged(first: Sample, second: Sample, seed: int) -> Float[np.ndarray, "exchanges"]:
    """Differences after each example's counts have, or have not, changed sides."""
    random = np.random.default_rng(seed)
    # Examples that move the sums alike are one kind, of which half change sides on average.
    gains, times = np.unique(second.counts - first.counts, axis=0, return_counts=True)
    moved = np.concatenate(
        [
            random.binomial(times, 0.5, size=(size, len(times))) @ gains
            for size in portions(EXCHANGES, len(gains))
        ]
    )
    before, after = first.counts.sum(axis=0), second.counts.sum(axis=0)
    differences: np.ndarray = second.figure(after - moved) - first.figure(before + moved)
    return differences


def portions(rows: int, columns: int) -> list[int]:
    """How many rows to draw at a time, so that memory stays bounded."""
    some = max(1, TOGETHER // columns)
    return [min(some, rows - start) for start in range(0, rows, some)]
