"""A head that attends about T steps back: the shift head without its highest frequencies.

    keep the (sin, cos) pairs with frequency w_i <= 1/B,  for sinusoids  i >= J log B / (2 log base)

B is the band. The peak of a sinusoid is about a radian wide, so these pairs hardly distinguish
offsets within T ± B/2. At the distance d from T, the score is lower by sharpness * drop(d):

    drop(d) = sum over these pairs of 1 - cos(w_i d)      half-width: sharpness * drop(d) = log 2
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

ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class BandPlan(PositionalPlan):
    """Attend about `offset` steps back, within half the `band`."""

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
    """Scores and attention of a band head around its offset."""

    pairs: tuple[int, ...]  # in use
    zeroed: int  # pairs whose frequency is too high
    drop_at_half: float  # of the score, from T to T ± B/2, at sharpness 1
    drop_at_band: float  # from T to T ± B
    half_width: float | None  # where attention is half of its peak; None if it never falls so far


def slow_pairs(plan: BandPlan) -> tuple[int, ...]:
    """Return the pairs with w_i <= 1/B; the fastest of them if the head has room for fewer."""
    frequencies = plan.basis.frequencies
    slow = (frequencies * plan.band <= 1 + ROUNDING).nonzero().flatten()
    if not len(slow):
        widest = 1 / float(frequencies.min())
        raise UserError(
            f"band: a band of {plan.band:g} is too wide (expected at most {widest:.0f}, "
            "1 / the lowest frequency)",
            fix=f"choose a band of {widest:.0f} at most",
        )
    fastest_first = slow[frequencies[slow].argsort(descending=True, stable=True)]
    return tuple(sorted(fastest_first[: plan.pair_count].tolist()))


def band_head(plan: BandPlan) -> Head:
    """Return the head for tokens that are the vectors of the basis."""
    subspaces = shared_subspaces(plan.basis.width)
    return rotation_head(plan.basis, plan.offset, slow_pairs(plan), plan.sharpness, subspaces)


def score_drop(frequencies: Float[Tensor, "pairs"], distance: float) -> float:
    """Return drop(d), the drop of the score at sharpness 1, at a distance from its peak."""
    return float(score_gaps(frequencies, torch.tensor([distance], dtype=torch.float64)).sum())


def half_width(frequencies: Float[Tensor, "pairs"], sharpness: float) -> float | None:
    """Return the distance at which attention is half of its peak, or None."""
    near, far = 0.0, math.pi / float(frequencies.max())  # the drop increases in between
    if sharpness * score_drop(frequencies, far) < math.log(2):
        return None
    for _ in range(60):
        middle = (near + far) / 2
        is_near = sharpness * score_drop(frequencies, middle) < math.log(2)
        near, far = (middle, far) if is_near else (near, middle)
    return far


def band_shape(plan: BandPlan) -> BandShape:
    """Compute the drops of the score and the half-width."""
    pairs, frequencies = slow_pairs(plan), plan.basis.frequencies
    slow = frequencies[list(pairs)]
    return BandShape(
        pairs=pairs,
        zeroed=int((frequencies * plan.band > 1 + ROUNDING).sum()),
        drop_at_half=score_drop(slow, plan.band / 2),
        drop_at_band=score_drop(slow, plan.band),
        half_width=half_width(slow, plan.sharpness),
    )
