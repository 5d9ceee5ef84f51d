"""Band head: attends about `offset` tokens back, like a shift head without high frequencies.

    keep the (sin, cos) pairs with frequency w_i <= 1 / band,
    for sinusoids of width J:  i >= J log(band) / (2 log(base))

`band` is a number of tokens. The peak of a sinusoid is about a radian wide, so these pairs hardly
distinguish offsets within offset ± band/2. Where the distance from query to key differs from the
offset by d tokens, the score is lower by sharpness * drop(d), and attention is half of its peak at
d = half-width:

    drop(d) = sum over these pairs of 1 - cos(w_i d)      sharpness * drop(half-width) = log 2
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from harken.design.head import Head, shared_subspaces
from harken.design.shift import PositionalPlan, rotation_head, score_gaps
from harken.errors import UserError

ROUNDING = 1e-12  # tolerance of w_i <= 1 / band


@dataclass(frozen=True, kw_only=True, slots=True)
class BandPlan(PositionalPlan):
    """Attend to offsets within `band` / 2 of `offset`."""

    kind: ClassVar[str] = "band"
    band: float
    sharpness: float = 1.0

    def __post_init__(self) -> None:
        PositionalPlan.__post_init__(self)
        if not (0 < self.band < math.inf and 0 < self.sharpness < math.inf):
            raise UserError(
                f"band: invalid band {self.band:g} or sharpness {self.sharpness:g} "
                "(expected finite numbers above 0)",
                fix="start with a band of 8 and a sharpness of 1",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BandShape:
    """The width of the attention of a band head around its offset."""

    pairs: tuple[int, ...]  # indices of the pairs that the head uses
    above_limit: int  # number of pairs of the basis with w_i > 1 / band
    drop_at_half: float  # drop(band / 2)
    drop_at_band: float  # drop(band)
    half_width: float | None  # see the function `half_width`


def band_pairs(plan: BandPlan) -> tuple[int, ...]:
    """Return the pairs with w_i <= 1 / band; if not all fit into the head, the fastest of them."""
    frequencies = plan.basis.frequencies
    slow = (frequencies * plan.band <= 1 + ROUNDING).nonzero().flatten()
    if not len(slow):
        widest = math.floor(1000 / float(frequencies.min())) / 1000  # rounded down, so it is valid
        raise UserError(
            f"band: the band is too wide (expected at most {widest:.3f}, 1 / the lowest frequency "
            f"of the positions, got {plan.band:g})",
            fix="choose a narrower band",
        )
    fastest_first = slow[frequencies[slow].argsort(descending=True, stable=True)]
    return tuple(sorted(fastest_first[: plan.pair_count].tolist()))


def band_head(plan: BandPlan) -> Head:
    """Return the head for tokens that are position vectors of the basis."""
    subspaces = shared_subspaces(plan.basis.width)
    return rotation_head(plan.basis, plan.offset, band_pairs(plan), plan.sharpness, subspaces)


def score_drop(frequencies: Float[Tensor, "pairs"], distance: float) -> float:
    """Return drop(d) for d = `distance`."""
    return float(score_gaps(frequencies, torch.tensor([distance], dtype=torch.float64)).sum())


def half_width(frequencies: Float[Tensor, "pairs"], sharpness: float) -> float | None:
    """Return the smallest d at which attention is half of its peak, by bisection.

    None if attention stays above half of its peak for half a period of the highest frequency.
    """
    near, far = 0.0, math.pi / float(frequencies.max())  # drop(d) increases from near to far
    if sharpness * score_drop(frequencies, far) < math.log(2):
        return None
    for _ in range(60):
        middle = (near + far) / 2
        is_near = sharpness * score_drop(frequencies, middle) < math.log(2)
        near, far = (middle, far) if is_near else (near, middle)
    return far


def band_shape(plan: BandPlan) -> BandShape:
    """Compute the drops of the score and the half-width."""
    pairs, frequencies = band_pairs(plan), plan.basis.frequencies
    used = frequencies[list(pairs)]
    return BandShape(
        pairs=pairs,
        above_limit=int((frequencies * plan.band > 1 + ROUNDING).sum()),
        drop_at_half=score_drop(used, plan.band / 2),
        drop_at_band=score_drop(used, plan.band),
        half_width=half_width(used, plan.sharpness),
    )
