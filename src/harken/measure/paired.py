"""Two systems on the same examples: by how much a figure differs, how surely, and whether at all.

    difference   figure(sums of the second) - figure(sums of the first)
    interval     95 %, by drawing examples again with the counts of both systems (paired bootstrap)
    p            if the systems were alike, an example's counts could be exchanged between them:
                 p = (1 + exchanges that differ by at least as much) / (1 + exchanges), two-sided

The interval says how large the difference may be, p whether there is one (approximate
randomisation). Where no two examples differ in what the systems make of them, the interval has no
width: drawing again cannot know that something else was possible. Several comparisons at once are
not corrected for.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from harken.measure.interval import LOWER_IS_BETTER, Sample, Unit, portions, resampled_sums

EXCHANGES = 10_000
SIGNIFICANT = 0.05  # below, the systems are called different


@dataclass(frozen=True, slots=True)
class Difference:
    """The second less the first, the ends of its interval, and the chance of it among equals."""

    value: float
    low: float
    high: float
    p: float
    unit: Unit

    @property
    def improves(self) -> bool | None:
        """Whether the second is better; None where chance could have made the difference."""
        if self.p >= SIGNIFICANT:
            return None
        return (self.value < 0) == (self.unit in LOWER_IS_BETTER)


def comparable(first: Sample, second: Sample) -> bool:
    """Whether both have the same examples and counted the same in each.

    A mean has what was counted in its last part: nats a token of two vocabularies, or the accuracy
    of two lists of known words, are figures of different things. Points have lengths of outputs,
    and what a system chose to be measured on is part of what it does.
    """
    if first.unit != second.unit or first.counts.shape != second.counts.shape:
        return False
    counted = first.counts[:, -1] == second.counts[:, -1]
    return first.unit == "points" or first.chosen or bool(counted.all())


def difference(first: Sample, second: Sample, seed: int = 0) -> Difference:
    """Of two samples over the same examples in the same order."""
    assert comparable(first, second), (first.unit, second.unit)
    if first.counts.tobytes() > second.counts.tobytes():
        # The same draws whichever comes first, so that exchanged systems get the mirrored answer.
        mirrored = difference(second, first, seed)
        value, low, high = (0.0 - one for one in (mirrored.value, mirrored.high, mirrored.low))
        return Difference(value, low, high, mirrored.p, mirrored.unit)
    value = second.value - first.value
    sums = resampled_sums(np.hstack((first.counts, second.counts)), seed)
    one, other = np.hsplit(sums, 2)
    low, high = np.quantile(second.figure(other) - first.figure(one), (0.025, 0.975))
    # A hair less: sums in another order are not equal to the last bit.
    far = np.abs(exchanged(first, second, seed)) >= (1 - 1e-9) * abs(value)
    p = (1 + int(far.sum())) / (1 + EXCHANGES)
    return Difference(value, float(low), float(high), p, first.unit)


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
    found: np.ndarray = second.figure(after - moved) - first.figure(before + moved)
    return found
