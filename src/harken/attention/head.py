"""An attention head given by its matrices, and patches that write it into parameters.

    score(i, t) = (W_Q x_i + b_Q) . (W_K x_t + b_K)      output: W_O W_V x_t

`Score.install` converts a head to patches; `harken.design` computes heads.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Head:
    """The matrices of a head, with the scale of its score in `queries`; values are optional."""

    queries: Float[Tensor, "U J"]
    keys: Float[Tensor, "U J"]
    query_offset: Float[Tensor, "U"] | None = None
    key_offset: Float[Tensor, "U"] | None = None
    values: Float[Tensor, "I J"] | None = None
    output: Float[Tensor, "J I"] | None = None

    @property
    def key_width(self) -> int:
        return self.queries.shape[0]

    def check_width(self, width: int) -> None:
        """Raise an error unless the head reads tokens of this width."""
        if self.queries.shape[1] != width:
            raise UserError(
                f"install: the head reads tokens of width {self.queries.shape[1]} "
                f"(expected {width}, the width of the layer)",
                fix="design it for this width",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Part of a parameter and the values designed for it."""

    parameter: Tensor
    where: tuple[slice | int, ...]
    values: Tensor


def pad_rows(matrix: Tensor, rows: int) -> Tensor:
    """Append rows of zeros up to this number of rows."""
    missing = matrix.new_zeros(rows - matrix.shape[0], *matrix.shape[1:])
    return torch.cat((matrix, missing))
