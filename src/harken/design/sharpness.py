"""How sharp a head must be, from how much attention it may give to wrong keys.

    wrong(t) = sum over wrong keys of exp(-s gap)       attention to the right one = 1/(1 + wrong)
    1/(1 + wrong) >= 1 - tolerance   follows from   s = log(n (1 - tolerance) / tolerance) / gap

with n wrong keys and the smallest gap of a score. The bound is enough, not needed: where it asks
for more than the limit below, the limit itself may still do.

    limit: s * largest score * epsilon <= log 2

Two scores, each rounded by up to half of that epsilon, could beyond it change places by log 2, and
rounding alone would double what wrong keys get: no promise holds in that precision.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.masks import MaskKind


def allowed_odds(tolerance: float) -> float:
    """Of wrong against right, at which the right has 1 - tolerance."""
    return tolerance / (1 - tolerance)


def enough(wrong: int, gap: float, tolerance: float) -> float:
    """A sharpness that keeps the tolerance against so many keys that score lower by `gap`."""
    return max(0.0, math.log(max(wrong, 1) / allowed_odds(tolerance))) / gap


def limit(largest: float, precision: torch.dtype) -> float:
    """The largest sharpness whose scores, `largest` at s = 1, can be told apart."""
    return math.log(2) / (largest * torch.finfo(precision).eps)


def right_attention(
    gaps: Float[Tensor, "S"], sharpness: float, order: MaskKind, offset: int, length: int
) -> Float[Tensor, "T"]:
    """To the key `offset` back, for the queries offset … length - 1, by the gap of each distance.

    Every query sees a stretch of distances from the right key, so that a running sum will do.
    """
    around = torch.cat((gaps[1:length].flip(0), gaps[:length]))
    weights = torch.exp(-sharpness * around)
    weights[length - 1] = 0.0  # the right key itself
    running = torch.cat((weights.new_zeros(1), weights.cumsum(dim=0)))
    queries = torch.arange(offset, length)
    farthest = queries - offset  # of the keys before the right one
    if order == "any":
        nearest = farthest - (length - 1)
    else:
        nearest = torch.full_like(farthest, -offset if order == "causal" else 1 - offset)
    wrong = running[farthest + length] - running[nearest + length - 1]
    return 1 / (1 + wrong)
