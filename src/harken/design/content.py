"""Heads that attend by content: copy a token, average two, look up a part of one, match a token.

    copy       q = M k_a                        attention to a       = 1 / (1 + (n-1) e^-M)
    average    q = M (k_a + k_b)                attention to a and b = 1 / (1 + (n-2)/2 e^-M)
    lookup     x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b
               V = (u_b u_b' - u_c u_c') / beta^2,  K = 1,  Q = (u_d u_a' + u_c u_d') / beta^2
               c_1 = u_b - u_c,  c_2 = u_b          1 / (1 + 2 e^(-beta^2)) of their attention

The n keys are orthonormal, the u orthogonal with norm beta, and a prime transposes. M and beta
follow from the tolerance.

Previous-match, the induction head, attends to the token after an earlier equal one, by two layers:

    layer 1   shift by one: scratch_t = content of t - 1, with at most `tolerance` of other contents
    layer 2   q_i = M content_i,  k_t = scratch_t:    score M where x_{t-1} = x_i
              M = log((n-1) (1 - tolerance) / tolerance) / (1 - 2 tolerance)

The first token copies itself: it must be a start symbol that does not occur again. Contents are
orthonormal, one direction per symbol. Several matches share the attention.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.attention.sinusoids import Sinusoids
from harken.design.head import Head, Subspaces, concatenated_subspaces, projection
from harken.design.shift import ShiftPlan, required_sharpness, shift
from harken.errors import UserError


def content_sharpness(keys: int, targets: int, tolerance: float) -> float:
    """Return M at which `targets` of `keys` orthonormal keys share 1 - tolerance of attention."""
    wrong = keys - targets
    if wrong < 0 or not 0 < tolerance < 1:
        raise UserError(
            f"design: invalid number of keys {keys} or tolerance {tolerance:g} "
            f"(expected {targets} keys at least and a tolerance between 0 and 1)",
            fix="give more keys, or a tolerance such as 0.01",
        )
    odds = tolerance / (1 - tolerance)
    return max(0.0, math.log(wrong / targets / odds)) if wrong else 0.0


def copy_head(keys: Float[Tensor, "S J"], targets: Sequence[int], tolerance: float) -> Head:
    """Return a head whose queries all attend equally to the tokens `keys[targets]`."""
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
        if targets.count(index) > 1:
            raise UserError(
                f"design: target {index} is given twice (expected different keys)",
                fix="name each key once",
            )
    identity = torch.eye(width, dtype=keys.dtype)
    return Head(
        queries=torch.zeros_like(identity),
        keys=identity,
        query_offset=sharpness * keys[list(targets)].sum(dim=0),
        values=identity,
        output=identity,
    )


def lookup_norm(tolerance: float) -> float:
    """Return beta: the square of the norm is the gap of the scores."""
    return math.sqrt(content_sharpness(3, 1, tolerance))


def lookup_tokens(directions: Float[Tensor, "4 J"], norm: float) -> Float[Tensor, "3 J"]:
    """Return x_1, x_2, x_3 for orthonormal directions of u_a, u_b, u_c, u_d."""
    a, b, c, d = directions * norm
    return torch.stack((d + b, a, c + b))


def lookup(directions: Float[Tensor, "4 J"]) -> Head:
    """Return Q, K and V for `lookup_tokens`; directions are unit vectors, so beta^2 cancels."""
    a, b, c, d = directions
    identity = torch.eye(directions.shape[1], dtype=directions.dtype)
    return Head(
        queries=torch.outer(d, a) + torch.outer(c, d),
        keys=identity,
        values=torch.outer(b, b) - torch.outer(c, c),
        output=identity,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchPlan:
    """Previous-match in texts of up to `length` symbols; symbol 0 is the start."""

    basis: Sinusoids
    symbols: int
    length: int
    tolerance: float = 0.01
    key_width: int | None = None  # of the first layer

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 0.5:
            raise UserError(
                f"previous-match: invalid tolerance {self.tolerance:g} (expected a number between "
                "0 and 0.5, so that the second layer can read the first)",
                fix="start with 0.01",
            )
        if self.symbols < 2:
            raise UserError(
                f"previous-match: {self.symbols} symbols are too few (expected a start symbol and "
                "another one)",
                fix="give 2 at least",
            )

    @property
    def subspaces(self) -> Subspaces:
        return concatenated_subspaces(self.symbols, self.basis.width, self.symbols)

    @property
    def first_layer(self) -> ShiftPlan:
        return ShiftPlan(
            basis=self.basis,
            offset=1,
            length=self.length,
            tolerance=self.tolerance,
            key_width=self.key_width,
        )

    @property
    def sharpness(self) -> float:
        """M of the second layer."""
        return required_sharpness(self.length - 1, 1 - 2 * self.tolerance, self.tolerance)


def previous_match(plan: MatchPlan) -> tuple[Head, Head]:
    """Return the heads of two consecutive layers."""
    subspaces = plan.subspaces
    content = projection(subspaces.content, subspaces.width)
    second = Head(
        queries=plan.sharpness * content,
        keys=projection(subspaces.scratch, subspaces.width),
        values=content,
        output=content.T,
    )
    return shift(plan.first_layer, subspaces), second


def matching_tokens(plan: MatchPlan, symbols: Int[Tensor, "T"]) -> Float[Tensor, "T J"]:
    """Return contents next to their positions, with an empty scratch."""
    subspaces, position = plan.subspaces, plan.subspaces.position
    tokens = torch.zeros(len(symbols), subspaces.width, dtype=torch.float64)
    tokens[torch.arange(len(symbols)), subspaces.content.start + symbols] = 1.0
    tokens[:, position.start : position.stop] = plan.basis.vectors(len(symbols))
    return tokens


def matches(symbols: Int[Tensor, "T"]) -> Bool[Tensor, "T S"]:
    """Return for each query the keys up to itself that follow its own symbol."""
    follows = torch.zeros(len(symbols), len(symbols), dtype=torch.bool)
    follows[:, 1:] = symbols[:, None] == symbols[None, :-1]
    return follows.tril()
