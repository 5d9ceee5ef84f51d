"""Normalization of token vectors.

layer   (x - mean) / sqrt(variance + eps) * weight + bias
rms     x / sqrt(mean of squares + eps) * weight
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class NormConfig:
    """The norms of Transformer blocks."""

    kind: Literal["layer", "rms"] = "layer"  # LayerNorm or RMSNorm
    # before each sublayer, after the residual sum, or before the attention and the feed-forward
    # layer, which then both read the input of the block (GPT-NeoX)
    place: Literal["pre", "post", "parallel"] = "pre"
    eps: float = bounded(1e-5, above=0.0, at_most=1.0)  # added to the variance or mean square

    def build(self, width: int) -> nn.Module:
        if self.kind == "rms":
            return RMSNorm(width, self.eps)
        return nn.LayerNorm(width, eps=self.eps)


class RMSNorm(nn.Module):
    """`nn.RMSNorm` with fewer passes over memory: PyTorch has no fused kernel on a CPU."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, inputs: Float[Tensor, "*B J"]) -> Float[Tensor, "*B J"]:
        norm = torch.linalg.vector_norm(inputs, dim=-1, keepdim=True)
        mean_square = norm.square() / inputs.shape[-1]
        normed: Tensor = inputs * (torch.rsqrt(mean_square + self.eps) * self.weight)
        return normed
