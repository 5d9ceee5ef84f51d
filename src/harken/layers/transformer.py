"""The Transformer block: attention, then a feed-forward layer, each added to what came in.

pre-norm    x + f(norm(x))      trains without care
post-norm   norm(x + f(x))      the original add-and-norm
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.multihead import Arrangement, KeyValues, MultiHeadConfig
from harken.config import bounded
from harken.layers.feedforward import FeedForwardConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig:
    """One block; `dropout` falls on what each half adds, in training."""

    attention: MultiHeadConfig = MultiHeadConfig()
    feedforward: FeedForwardConfig = FeedForwardConfig()
    norm: Literal["pre", "post"] = "pre"
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)

    def build(self, width: int, length: int) -> "TransformerBlock":
        return TransformerBlock(self, width, length)


class TransformerBlock(nn.Module):
    """Self-attention and feed-forward with residual paths: B T J -> B T J."""

    def __init__(self, config: TransformerConfig, width: int, length: int) -> None:
        super().__init__()
        self.attention = config.attention.build(width, length)
        self.feedforward = config.feedforward.build(width)
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(
        self,
        inputs: Float[Tensor, "B T J"],
        arrangement: Arrangement,
        past: KeyValues | None = None,
    ) -> tuple[Float[Tensor, "B T J"], KeyValues]:
        if self.pre_norm:
            mixed, seen = self.attention(self.attention_norm(inputs), arrangement, past)
            middle = inputs + self.dropout(mixed)
            return middle + self.dropout(self.feedforward(self.feedforward_norm(middle))), seen
        mixed, seen = self.attention(inputs, arrangement, past)
        middle = self.attention_norm(inputs + self.dropout(mixed))
        return self.feedforward_norm(middle + self.dropout(self.feedforward(middle))), seen
