"""Heads that attend to a content: copy one key, average two, look up by a table.

    copy       q = M k_a                        attention to a       = 1 / (1 + (n-1) e^-M)
    average    q = M (k_a + k_b)                attention to a and b = 1 / (1 + (n-2)/2 e^-M)
    lookup     x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b
               V = (u_b u_b' - u_c u_c') / beta^2,  K = 1,  Q = (u_d u_a' + u_c u_d') / beta^2
               c_1 = u_b - u_c,  c_2 = u_b          1 / (1 + 2 e^(-beta^2)) of their attention

The n keys are orthonormal, the u orthogonal with norm beta, and a prime transposes. M and beta
follow from the tolerance. For noisy keys see claim B11.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from harken.design.head import Head
from harken.errors import UserError


def content_sharpness(keys: int, targets: int, tolerance: float) -> float:
    """M at which some of `keys` orthonormal keys share 1 - tolerance of the attention."""
    wrong = keys - targets
    if wrong < 0 or not 0 < tolerance < 1:
        raise UserError(
            f"design: invalid number of keys {keys} or tolerance {tolerance:g} "
            f"(expected {targets} keys at least and a tolerance between 0 and 1)",
            fix="give more keys, or a tolerance such as 0.01",
        )
    odds = tolerance / (1 - tolerance)
    return max(0.0, math.log(wrong / targets / odds)) if wrong else 0.0


def copy(keys: Float[Tensor, "S J"], index: int, tolerance: float) -> Head:
    """Every query attends to the token whose content is `keys[index]`."""
    return _constant_query(keys, [index], tolerance)


def average(keys: Float[Tensor, "S J"], first: int, second: int, tolerance: float) -> Head:
    """Every query attends to two tokens equally."""
    if first == second:
        raise UserError(
            f"average: key {first} is given twice (expected two different keys)",
            fix="or design a copy",
        )
    return _constant_query(keys, [first, second], tolerance)


def _constant_query(keys: Tensor, targets: list[int], tolerance: float) -> Head:
    """A head with one query for all tokens; keys are the tokens themselves."""
    count, width = keys.shape
    sharpness = content_sharpness(count, len(targets), tolerance)
    if not torch.allclose(keys @ keys.T, torch.eye(count, dtype=keys.dtype), atol=1e-9):
        raise UserError(
            f"design: {count} keys of width {width} are not orthonormal (the sharpness follows "
            "from orthonormal keys)",
            fix="give at most as many keys as the width, each of norm 1 and orthogonal",
        )
    for index in targets:
        if not 0 <= index < count:
            raise UserError(
                f"design: no key {index} (expected 0 to {count - 1})", fix="count keys from 0"
            )
    identity = torch.eye(width, dtype=keys.dtype)
    return Head(
        queries=torch.zeros_like(identity),
        keys=identity,
        query_offset=sharpness * keys[targets].sum(dim=0),
        values=identity,
        output=identity,
    )


def lookup_norm(tolerance: float) -> float:
    """beta: the square of the norm is the gap of the scores."""
    return math.sqrt(content_sharpness(3, 1, tolerance))


def lookup_tokens(directions: Float[Tensor, "4 J"], norm: float) -> Float[Tensor, "3 J"]:
    """x_1, x_2, x_3 from orthonormal directions of u_a, u_b, u_c, u_d."""
    a, b, c, d = directions * norm
    return torch.stack((d + b, a, c + b))


def lookup(directions: Float[Tensor, "4 J"]) -> Head:
    """Q, K and V for `lookup_tokens`; directions are unit vectors, so beta^2 is divided out."""
    a, b, c, d = directions
    identity = torch.eye(directions.shape[1], dtype=directions.dtype)
    return Head(
        queries=torch.outer(d, a) + torch.outer(c, d),
        keys=identity,
        values=torch.outer(b, b) - torch.outer(c, c),
        output=identity,
    )
