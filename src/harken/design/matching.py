"""Previous-match, the induction head: attend to what followed an earlier equal token.

    layer 1   shift by one: scratch_t = content of t - 1, with 1 - tolerance
    layer 2   q_i = M content_i,  k_t = scratch_t:    score M where x_{t-1} = x_i

The first layer leaves up to `tolerance` of a wrong content in every scratch, so a right score is at
least M (1 - tolerance) and a wrong one at most M tolerance:

    M = log((n-1) (1 - tolerance) / tolerance) / (1 - 2 tolerance)

The first token has no predecessor and copies itself: it must be a start symbol that occurs nowhere
else. Contents are orthonormal, one direction per symbol. Several matches share the attention.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.design.head import Head
from harken.design.sharpness import required_sharpness
from harken.design.shift import ShiftPlan, shift
from harken.design.subspaces import Subspaces, concatenated_subspaces, projection
from harken.design.waves import Waves, wave_vectors
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchPlan:
    """Texts of up to `length` symbols; symbol 0 is the start."""

    waves: Waves
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
        return concatenated_subspaces(self.symbols, self.waves.width, self.symbols)

    @property
    def first(self) -> ShiftPlan:
        return ShiftPlan(
            waves=self.waves,
            offset=1,
            length=self.length,
            tolerance=self.tolerance,
            key_width=self.key_width,
        )

    @property
    def sharpness(self) -> float:
        """M."""
        return required_sharpness(self.length - 1, 1 - 2 * self.tolerance, self.tolerance)


def previous_match(plan: MatchPlan) -> tuple[Head, Head]:
    """One head for each of two consecutive layers."""
    subspaces = plan.subspaces
    content = projection(subspaces.content, subspaces.width)
    second = Head(
        queries=plan.sharpness * content,
        keys=projection(subspaces.scratch, subspaces.width),
        values=content,
        output=content.T,
    )
    return shift(plan.first, subspaces), second


def matching_tokens(plan: MatchPlan, symbols: Int[Tensor, "T"]) -> Float[Tensor, "T J"]:
    """Contents next to their positions, with an empty scratch."""
    subspaces, position = plan.subspaces, plan.subspaces.position
    tokens = torch.zeros(len(symbols), subspaces.width, dtype=torch.float64)
    tokens[torch.arange(len(symbols)), subspaces.content.start + symbols] = 1.0
    tokens[:, position.start : position.stop] = wave_vectors(plan.waves, len(symbols))
    return tokens


def matches(symbols: Int[Tensor, "T"]) -> Bool[Tensor, "T S"]:
    """For each query the keys up to itself that follow its own symbol."""
    follows = torch.zeros(len(symbols), len(symbols), dtype=torch.bool)
    follows[:, 1:] = symbols[:, None] == symbols[None, :-1]
    return follows.tril()
