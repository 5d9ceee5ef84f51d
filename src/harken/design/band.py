"""A head that looks about T steps back: the shift without its fastest waves.

    keep the pairs with w_i B <= 1,  for sinusoids   i >= J log B / (2 log base)

A wave's peak is about a radian wide, so those that are left cannot tell offsets within T ± B/2
apart. They still can, a little: the score peaks at T and falls smoothly, and any sharpness s makes
that fall as steep as it likes. So s is an argument here, and the width of the band follows:

    drop(d) = sum over the kept pairs of 1 - cos(w d)       half-width: the d with s drop(d) = log 2
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design.head import Head
from harken.design.shift import turned
from harken.design.subspaces import Subspaces, shared
from harken.design.waves import Waves, frequencies, gap_table
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class BandPlan:
    """About `offset` back, give or take half the `band`."""

    waves: Waves
    offset: int
    band: float
    sharpness: float = 1.0
    length: int
    key_width: int | None = None
    order: MaskKind = "causal"

    def __post_init__(self) -> None:
        least = 1 if self.order == "strict" else 0
        if not least <= self.offset < self.length:
            raise UserError(
                f"band: found offset {self.offset} in texts of {self.length}, "
                f"wanted {least} to {self.length - 1}",
                fix="a text must be longer than the offset, and a key must be seen",
            )
        if not (0 < self.band < math.inf and 0 < self.sharpness < math.inf):
            raise UserError(
                f"band: found band {self.band:g} with sharpness {self.sharpness:g}, "
                "wanted both above 0 and finite",
                fix="a band of 8 and a sharpness of 1 are a start",
            )
        if self.key_width is not None and self.key_width < 2:
            raise UserError(
                f"band: found key width {self.key_width}, wanted room for a pair of waves",
                fix="make it 2 at least",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BandShape:
    """What a band head does around its offset."""

    pairs: tuple[int, ...]  # kept
    zeroed: int  # pairs that are too fast
    drop_at_half: float  # of the score, from T to T ± B/2, at s = 1
    drop_at_band: float  # from T to T ± B
    half_width: float | None  # where attention is half of its peak; None where it never falls so
    inside: float  # attention to T ± B/2, of the last query


def kept_pairs(plan: BandPlan) -> tuple[int, ...]:
    """Slow enough for the band; the fastest of those, where the head has no room for all."""
    slow = (frequencies(plan.waves) * plan.band <= 1 + 1e-12).nonzero().flatten()
    if not len(slow):
        widest = 1 / float(frequencies(plan.waves).min())
        raise UserError(
            f"band: found a band of {plan.band:g}, and the slowest wave turns a radian in "
            f"{widest:.0f} steps",
            fix=f"make the band {widest:.0f} at most",
        )
    fastest_first = slow[frequencies(plan.waves)[slow].argsort(descending=True, stable=True)]
    room = len(slow) if plan.key_width is None else plan.key_width // 2
    return tuple(sorted(fastest_first[:room].tolist()))


def band(plan: BandPlan, subspaces: Subspaces | None = None) -> Head:
    """The head for tokens that hold these waves in their part `position`."""
    return turned(
        plan.waves,
        plan.offset,
        kept_pairs(plan),
        plan.sharpness,
        subspaces or shared(plan.waves.width),
    )


def drop(found: Float[Tensor, "pairs"], distance: float) -> float:
    """Of the score at s = 1, so far from its peak."""
    return float((2 * (found * distance / 2).sin().square()).sum())


def half_width(found: Float[Tensor, "pairs"], sharpness: float) -> float | None:
    """How far from the peak attention is half of it; drop grows up to the fastest half turn."""
    near, far = 0.0, math.pi / float(found.max())
    if sharpness * drop(found, far) < math.log(2):
        return None
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (
            (middle, far) if sharpness * drop(found, middle) < math.log(2) else (near, middle)
        )
    return far


def band_attention(plan: BandPlan) -> Float[Tensor, "S"]:
    """Of the last query over all keys, by the formula."""
    gaps = gap_table(frequencies(plan.waves)[list(kept_pairs(plan))], plan.length).sum(dim=1)
    last = plan.length - 1
    scores = -plan.sharpness * gaps[(last - plan.offset - torch.arange(plan.length)).abs()]
    if plan.order == "strict":
        scores[last] = -math.inf
    return scores.softmax(dim=0)


def band_shape(plan: BandPlan) -> BandShape:
    """Drops, half-width and the share inside the band."""
    pairs = kept_pairs(plan)
    found = frequencies(plan.waves)[list(pairs)]
    back = plan.length - 1 - torch.arange(plan.length)
    within = (back - plan.offset).abs() <= plan.band / 2
    return BandShape(
        pairs=pairs,
        zeroed=int((frequencies(plan.waves) * plan.band > 1 + 1e-12).sum()),
        drop_at_half=drop(found, plan.band / 2),
        drop_at_band=drop(found, plan.band),
        half_width=half_width(found, plan.sharpness),
        inside=float(band_attention(plan)[within].sum()),
    )
