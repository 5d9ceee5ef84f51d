"""Heads that attend by content: copy, average, lookup and induction.

    copy       q = M k_a              attention to a                 = 1 / (1 + (n-1) e^-M)
    average    q = M (k_a + k_b)      attention to a and b together  = 1 / (1 + (n-2)/2 e^-M)
    lookup     x_1 = u_d + u_b, x_2 = u_a, x_3 = u_c + u_b
               V = (u_b u_b' - u_c u_c') / beta^2,  K = 1,  Q = (u_d u_a' + u_c u_d') / beta^2
               outputs u_b - u_c for x_1 and u_b for x_2, with attention 1 / (1 + 2 e^(-beta^2))

The n keys are orthonormal, the u are orthogonal with norm beta, and u' is u transposed. M and beta
follow from the tolerance.

Induction, with a head in each of two layers, attends to the token after an earlier equal token:

    layer 1   shift by one: scratch_t = content_{t-1}, with at most `tolerance` of other contents,
              where content and scratch are two subspaces of a token (`head.py`)
    layer 2   q_i = M content_i,  k_t = scratch_t:    score about M where content_{t-1} = content_i
              M = log((T-1) (1 - tolerance) / tolerance) / (1 - 2 tolerance),  T the maximum length

The first token, which copies itself, must be a start symbol that does not occur again. Contents are
orthonormal, one direction per symbol. If there are several matches, they share the attention.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.attention.sinusoids import Sinusoids
from harken.design.head import Head, Subspaces, concatenated_subspaces, projection
from harken.design.shift import ShiftPlan, required_sharpness, shift_head
from harken.errors import UserError


def content_sharpness(*, target_keys: int, wrong_keys: int, tolerance: float) -> float:
    """Return M for which the target keys get 1 - tolerance of attention; keys are orthonormal."""
    if wrong_keys < 0 or not 0 < tolerance < 1:
        raise UserError(
            f"design: invalid number of keys {target_keys + wrong_keys} or tolerance {tolerance:g} "
            f"(expected at least {target_keys} keys and a tolerance between 0 and 1)",
            fix="give more keys, or a tolerance such as 0.01",
        )
    odds = tolerance / (1 - tolerance)
    return max(0.0, math.log(wrong_keys / target_keys / odds)) if wrong_keys else 0.0


def copy_head(keys: Float[Tensor, "S J"], targets: Sequence[int], tolerance: float) -> Head:
    """Return a head whose queries all attend equally to the tokens `keys[targets]`."""
    count, width = keys.shape
    sharpness = content_sharpness(
        target_keys=len(targets), wrong_keys=count - len(targets), tolerance=tolerance
    )
    if not torch.allclose(keys @ keys.T, torch.eye(count, dtype=keys.dtype), atol=1e-9):
        raise UserError(
            f"design: the {count} keys of width {width} are not orthonormal",
            fix="pass orthogonal keys of norm 1, at most as many as their width",
        )
    for index in targets:
        if not 0 <= index < count:
            raise UserError(
                f"design: no key {index} (expected 0 to {count - 1})", fix="count keys from 0"
            )
        if targets.count(index) > 1:
            raise UserError(
                f"design: target {index} is given twice (expected different keys)",
                fix="give each key once",
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
    """Return beta, the norm of the vectors u. The gap between scores is beta^2."""
    return math.sqrt(content_sharpness(target_keys=1, wrong_keys=2, tolerance=tolerance))


def lookup_tokens(directions: Float[Tensor, "4 J"], norm: float) -> Float[Tensor, "3 J"]:
    """Return x_1, x_2, x_3 for the orthonormal directions of u_a, u_b, u_c, u_d."""
    a, b, c, d = directions * norm
    return torch.stack((d + b, a, c + b))


def lookup_head(directions: Float[Tensor, "4 J"]) -> Head:
    """Return the head for `lookup_tokens`; beta^2 cancels, since directions are unit vectors."""
    a, b, c, d = directions
    identity = torch.eye(directions.shape[1], dtype=directions.dtype)
    return Head(
        queries=torch.outer(d, a) + torch.outer(c, d),
        keys=identity,
        values=torch.outer(b, b) - torch.outer(c, c),
        output=identity,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class InductionPlan:
    """Induction in texts of up to `length` symbols; symbol 0 is the start symbol."""

    basis: Sinusoids
    vocabulary: int  # number of symbols, with the start symbol
    length: int
    tolerance: float = 0.01
    key_width: int | None = None  # key width of the first layer

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 0.5:
            raise UserError(
                f"induction: invalid tolerance {self.tolerance:g} (expected a number between "
                "0 and 0.5, since the second layer reads the output of the first)",
                fix="start with 0.01",
            )
        if self.vocabulary < 2:
            raise UserError(
                f"induction: too few symbols (expected at least 2, with the start symbol, got "
                f"{self.vocabulary})",
                fix="give at least 2 symbols",
            )

    @property
    def subspaces(self) -> Subspaces:
        return concatenated_subspaces(self.vocabulary, self.basis.width, self.vocabulary)

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
        """The factor M of the second layer's queries."""
        return required_sharpness(
            wrong_keys=self.length - 1, gap=1 - 2 * self.tolerance, tolerance=self.tolerance
        )


def induction_heads(plan: InductionPlan) -> tuple[Head, Head]:
    """Return the heads of the two layers."""
    subspaces = plan.subspaces
    content = projection(subspaces.content, subspaces.width)
    second = Head(
        queries=plan.sharpness * content,
        keys=projection(subspaces.scratch, subspaces.width),
        values=content,
        output=content.T,
    )
    return shift_head(plan.first_layer, subspaces), second


def induction_tokens(plan: InductionPlan, symbols: Int[Tensor, "T"]) -> Float[Tensor, "T J"]:
    """Return token vectors with content, position and an empty scratch subspace."""
    subspaces, position = plan.subspaces, plan.subspaces.position
    tokens = torch.zeros(len(symbols), subspaces.width, dtype=torch.float64)
    tokens[torch.arange(len(symbols)), subspaces.content.start + symbols] = 1.0
    tokens[:, position.start : position.stop] = plan.basis.vectors(len(symbols))
    return tokens


def induction_targets(symbols: Int[Tensor, "T"]) -> Bool[Tensor, "T S"]:
    """Return for each query a mask of the keys after earlier tokens with the query's symbol."""
    follows = torch.zeros(len(symbols), len(symbols), dtype=torch.bool)
    follows[:, 1:] = symbols[:, None] == symbols[None, :-1]
    return follows.tril()
