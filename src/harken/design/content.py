"""Heads that look for a content: copy one key, average two, look up by a table.

    copy       q = M k_a                        attention to a       = 1 / (1 + (n-1) e^-M)
    average    q = M (k_a + k_b)                attention to a and b = 1 / (1 + (n-2)/2 e^-M)
    lookup     x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b
               V = (u_b u_b' - u_c u_c') / beta^2,  K = 1,  Q = (u_d u_a' + u_c u_d') / beta^2
               c_1 = u_b - u_c,  c_2 = u_b          1 / (1 + 2 e^(-beta^2)) of their attention

The n keys are orthonormal, the u orthogonal with norm beta, and a prime transposes. M and beta
follow from the tolerance. What happens when keys are noisy is not here: an average of two by one
head then swings between them.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from harken.design.head import Head
from harken.design.sharpness import allowed_odds
from harken.errors import UserError


def copy_sharpness(keys: int, tolerance: float) -> float:
    """M at which one of so many orthonormal keys has 1 - tolerance."""
    return _sharpness(keys - 1, 1, tolerance)


def average_sharpness(keys: int, tolerance: float) -> float:
    """M at which two of so many orthonormal keys share 1 - tolerance."""
    return _sharpness(keys - 2, 2, tolerance)


def _sharpness(wrong: int, right: int, tolerance: float) -> float:
    if wrong < 0 or not 0 < tolerance < 1:
        raise UserError(
            f"design: found {wrong + right} keys with tolerance {tolerance:g}, "
            f"wanted {right} keys at least and a tolerance between 0 and 1",
            fix="give more keys, or a tolerance such as 0.01",
        )
    return max(0.0, math.log(wrong / right / allowed_odds(tolerance))) if wrong else 0.0


def copy(keys: Float[Tensor, "S J"], index: int, tolerance: float) -> Head:
    """Whoever asks gets the token whose content is `keys[index]`."""
    return _asking(keys, [index], copy_sharpness(len(keys), tolerance))


def average(keys: Float[Tensor, "S J"], one: int, other: int, tolerance: float) -> Head:
    """Whoever asks gets the mean of two tokens."""
    if one == other:
        raise UserError(
            f"average: found key {one} twice, wanted two different ones", fix="or design a copy"
        )
    return _asking(keys, [one, other], average_sharpness(len(keys), tolerance))


def _asking(keys: Tensor, wanted: list[int], sharpness: float) -> Head:
    """A query that is the same for all, over keys that are the tokens themselves."""
    count, width = keys.shape
    if not torch.allclose(keys @ keys.T, torch.eye(count, dtype=keys.dtype), atol=1e-9):
        raise UserError(
            f"design: found {count} keys of width {width} that are not orthonormal, "
            "wanted them so: the sharpness follows from it",
            fix="give at most as many keys as the width, each of length 1, at right angles",
        )
    for index in wanted:
        if not 0 <= index < count:
            raise UserError(
                f"design: found key {index}, wanted 0 to {count - 1}", fix="count keys from 0"
            )
    same = torch.eye(width, dtype=keys.dtype)
    return Head(
        queries=torch.zeros_like(same),
        keys=same,
        query_offset=sharpness * keys[wanted].sum(dim=0),
        values=same,
        output=same,
    )


def lookup_norm(tolerance: float, keys: int = 3) -> float:
    """beta: the square of the norm is the gap of the scores."""
    return math.sqrt(copy_sharpness(keys, tolerance))


def lookup_tokens(directions: Float[Tensor, "4 J"], norm: float) -> Float[Tensor, "3 J"]:
    """x_1, x_2, x_3 from orthonormal directions of u_a, u_b, u_c, u_d."""
    a, b, c, d = directions * norm
    return torch.stack((d + b, a, c + b))


def lookup(directions: Float[Tensor, "4 J"]) -> Head:
    """The Q, K and V of the source, for tokens of `lookup_tokens`."""
    a, b, c, d = directions
    # Directions are unit vectors, so that dividing by beta^2 has already happened.
    return Head(
        queries=torch.outer(d, a) + torch.outer(c, d),
        keys=torch.eye(directions.shape[1], dtype=directions.dtype),
        values=torch.outer(b, b) - torch.outer(c, c),
        output=torch.eye(directions.shape[1], dtype=directions.dtype),
    )
