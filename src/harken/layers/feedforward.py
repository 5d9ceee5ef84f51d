"""The position-wise feed-forward layer.

    relu, gelu, gelu_tanh, silu   W_2 f(W_1 x)
    swiglu                        W_2 (silu(W_1 x) * W_3 x)

W_1 is `up_proj`, W_2 `down_proj`, W_3 `gate_proj`; in Llama, W_1 is `gate_proj` and W_3 `up_proj`.
`gelu` is exact; `gelu_tanh` is the approximation of GPT-2.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import ResidualLinear
from harken.config import bounded

ACTIVATIONS: dict[str, Any] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedForwardConfig:
    """The position-wise feed-forward layer."""

    # activation function
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"] = "gelu_tanh"
    expansion: float = bounded(4.0, above=0.0, at_most=1024.0)  # inner width as a multiple of J
    inner: int | None = bounded(None, at_least=1)  # inner width; overrides `expansion`
    bias: bool = True  # whether the projections have a bias

    def build(self, width: int) -> "FeedForward":
        return FeedForward(self, width)


class FeedForward(nn.Module):
    """B T J -> B T J, for each token separately."""

    def __init__(self, config: FeedForwardConfig, width: int) -> None:
        super().__init__()
        inner = config.inner or round(config.expansion * width)
        self.activate = ACTIVATIONS[config.activation]
        self.activation = config.activation
        self.up_proj = nn.Linear(width, inner, bias=config.bias)
        self.gate_proj: nn.Linear | None = None
        if config.activation == "swiglu":
            self.gate_proj = nn.Linear(width, inner, bias=config.bias)
        self.down_proj = ResidualLinear(inner, width, bias=config.bias)

    def forward(self, inputs: Float[Tensor, "B T J"]) -> Float[Tensor, "B T J"]:
        hidden = self.activate(self.up_proj(inputs))
        if self.gate_proj is not None:
            hidden = hidden * self.gate_proj(inputs)
        return cast(Tensor, self.down_proj(hidden))
