"""Attention heads as matrices, and patches that write them into the parameters of a layer.

    score(i, t) = (W_Q x_i + b_Q) . (W_K x_t + b_K)      output: W_O W_V x_t

`harken.design` computes heads, and `Score.head_patches` converts them to patches. `LowRank` holds
the matrices of a score that is a product of two projected tokens, or the factors of W_O W_V.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.kernels import repeat_kv
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Head:
    """W_Q, W_K, W_V and W_O of a head. W_Q includes the scale; W_V and W_O are optional."""

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
                fix="design the head for this width",
            )


@dataclass(frozen=True, slots=True, eq=False)
class WeightPatch:
    """Part of a parameter, and its new values."""

    parameter: Tensor
    index: tuple[slice | int, ...]
    values: Tensor


def pad_rows(matrix: Tensor, rows: int) -> Tensor:
    """Append rows of zeros up to this number of rows."""
    missing = matrix.new_zeros(rows - matrix.shape[0], *matrix.shape[1:])
    return torch.cat((matrix, missing))


def projection_patches(
    projection: nn.Linear, heads: int, index: int, matrix: Tensor, offset: Tensor | None = None
) -> list[WeightPatch]:
    """Return the patches that write a matrix and an offset as one head of a projection."""
    width = projection.out_features // heads
    rows = slice(index * width, (index + 1) * width)
    patches = [WeightPatch(projection.weight, (rows,), pad_rows(matrix, width))]
    if projection.bias is not None:
        bias = matrix.new_zeros(width) if offset is None else pad_rows(offset, width)
        patches.append(WeightPatch(projection.bias, (rows,), bias))
    elif offset is not None:
        raise UserError(
            "install: the head has offsets, but the projections of the layer have no bias",
            fix="set attention.bias = true",
        )
    return patches


@dataclass(frozen=True, slots=True)
class LowRank:
    """Factors of a matrix left^T right per head, such as W_Q^T W_K or W_O W_V.

    The score of tokens x and y is (left x + left_offset) . (right y + right_offset).
    """

    left: Float[Tensor, "k U J"]
    right: Float[Tensor, "k U memory_width"]
    left_offset: Float[Tensor, "k U"]
    right_offset: Float[Tensor, "k U"]


def split_projection(
    projection: nn.Linear, kv_heads: int, heads: int
) -> tuple[Float[Tensor, "k U J"], Float[Tensor, "k U"]]:
    """Return weight and bias of a projection to `kv_heads` heads, repeated for all heads."""
    weight = rearrange(projection.weight, "(k U) J -> k U J", k=kv_heads)
    offset = weight.new_zeros(weight.shape[:2])
    if projection.bias is not None:
        offset = projection.bias.view(kv_heads, -1)
    return repeat_kv(heads, weight[None])[0], repeat_kv(heads, offset[None, :, None])[0, :, 0]
