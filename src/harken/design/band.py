"""A head that attends about T steps back: the shift head without its highest frequencies.

    keep the pairs with w_i B <= 1,  for sinusoids   i >= J log B / (2 log base)

The peak of a sinusoid is about a radian wide, so the remaining pairs hardly distinguish offsets
within T ± B/2. The score still peaks at T and falls smoothly, by s drop(d) at the distance d:

    drop(d) = sum over the kept pairs of 1 - cos(w d)       half-width: the d with s drop(d) = log 2
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design.head import Head, shared_subspaces
from harken.design.shift import check_sizes, rotation_head
from harken.design.waves import Waves, frequencies, gap_table
from harken.errors import UserError

ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class BandPlan:
    """Attend about `offset` steps back, within half the `band`."""

    waves: Waves
    offset: int
    band: float
    sharpness: float = 1.0
    length: int
    key_width: int | None = None
    order: MaskKind = "causal"

    def __post_init__(self) -> None:
        check_sizes("band", self.offset, self.length, self.key_width, self.order)
        if not (0 < self.band < math.inf and 0 < self.sharpness < math.inf):
            raise UserError(
                f"band: invalid band {self.band:g} or sharpness {self.sharpness:g} "
                "(expected finite numbers above 0)",
                fix="start with a band of 8 and a sharpness of 1",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BandShape:
    """Scores and attention of a band head around its offset."""

    pairs: tuple[int, ...]  # kept
    zeroed: int  # pairs whose frequency is too high
    drop_at_half: float  # of the score, from T to T ± B/2, at s = 1
    drop_at_band: float  # from T to T ± B
    half_width: float | None  # where attention is half of its peak; None if it never falls so far


def slow_pairs(plan: BandPlan) -> tuple[int, ...]:
    """Return the pairs that are slow enough for the band; the fastest of these if not all fit."""
    rates = frequencies(plan.waves)
    slow = (rates * plan.band <= 1 + ROUNDING).nonzero().flatten()
    if not len(slow):
        widest = 1 / float(rates.min())
        raise UserError(
            f"band: a band of {plan.band:g} is too wide (the slowest wave turns a radian in "
            f"{widest:.0f} steps)",
            fix=f"choose a band of {widest:.0f} at most",
        )
    fastest_first = slow[rates[slow].argsort(descending=True, stable=True)]
    count = len(slow) if plan.key_width is None else plan.key_width // 2
    return tuple(sorted(fastest_first[:count].tolist()))


def band(plan: BandPlan) -> Head:
    """Return the head for tokens that are these waves."""
    subspaces = shared_subspaces(plan.waves.width)
    return rotation_head(plan.waves, plan.offset, slow_pairs(plan), plan.sharpness, subspaces)


def score_drop(rates: Float[Tensor, "pairs"], distance: float) -> float:
    """Return the drop of the score at s = 1, at a distance from its peak."""
    return float((2 * (rates * distance / 2).sin().square()).sum())


def half_width(rates: Float[Tensor, "pairs"], sharpness: float) -> float | None:
    """Return where attention is half of its peak; the drop grows up to half a turn."""
    near, far = 0.0, math.pi / float(rates.max())
    if sharpness * score_drop(rates, far) < math.log(2):
        return None
    for _ in range(60):
        middle = (near + far) / 2
        is_near = sharpness * score_drop(rates, middle) < math.log(2)
        near, far = (middle, far) if is_near else (near, middle)
    return far


def band_attention(plan: BandPlan) -> Float[Tensor, "S"]:
    """Return the attention of the last query over all keys, by the formula."""
    gaps = gap_table(frequencies(plan.waves)[list(slow_pairs(plan))], plan.length).sum(dim=1)
    last = plan.length - 1
    scores = -plan.sharpness * gaps[(last - plan.offset - torch.arange(plan.length)).abs()]
    if plan.order == "strictly_causal":
        scores[last] = -math.inf
    return scores.softmax(dim=0)


def band_shape(plan: BandPlan) -> BandShape:
    """Compute the drops of the score and the half-width."""
    pairs, rates = slow_pairs(plan), frequencies(plan.waves)
    slow = rates[list(pairs)]
    return BandShape(
        pairs=pairs,
        zeroed=int((rates * plan.band > 1 + ROUNDING).sum()),
        drop_at_half=score_drop(slow, plan.band / 2),
        drop_at_band=score_drop(slow, plan.band),
        half_width=half_width(slow, plan.sharpness),
    )
