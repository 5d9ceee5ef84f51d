"""The scale of scores (sharpness) that a head needs for a tolerance, and its limit by rounding.

    wrong(t) = sum over wrong keys of exp(-s gap)       attention to the target = 1/(1 + wrong)
    1/(1 + wrong) >= 1 - tolerance   follows from   s = log(n (1 - tolerance) / tolerance) / gap

with n wrong keys and the smallest gap of a score. The bound is sufficient, not necessary: if it
exceeds the limit below, the limit itself may still be enough.

    limit: s * largest score * epsilon <= log 2

Beyond it, two scores that are each rounded by half of that epsilon could change order by log 2, and
rounding alone could double the attention to wrong keys.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.masks import MaskKind


def required_sharpness(wrong: int, gap: float, tolerance: float) -> float:
    """The sharpness that keeps the tolerance against `wrong` keys that score lower by `gap`."""
    odds = tolerance / (1 - tolerance)
    return max(0.0, math.log(max(wrong, 1) / odds)) / gap


def max_sharpness(largest: float, precision: torch.dtype) -> float:
    """The largest sharpness at which scores, `largest` at s = 1, are distinguished."""
    return math.log(2) / (largest * torch.finfo(precision).eps)


def target_attention(
    gaps: Float[Tensor, "S"], sharpness: float, order: MaskKind, offset: int, length: int
) -> Float[Tensor, "T"]:
    """Attention to the key `offset` back of the queries offset … length - 1, from gaps by distance.

    Every query sees an interval of distances from the target key, so running sums are enough.
    """
    around = torch.cat((gaps[1:length].flip(0), gaps[:length]))
    weights = torch.exp(-sharpness * around)
    weights[length - 1] = 0.0  # the target key itself
    running = torch.cat((weights.new_zeros(1), weights.cumsum(dim=0)))
    farthest = torch.arange(length - offset)  # distance of the first key
    if order == "bidirectional":
        nearest = farthest - (length - 1)
    else:
        nearest = torch.full_like(farthest, -offset if order == "causal" else 1 - offset)
    wrong = running[farthest + length] - running[nearest + length - 1]
    return 1 / (1 + wrong)
