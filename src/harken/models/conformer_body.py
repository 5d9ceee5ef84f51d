"""A body of Conformer blocks, B T J -> B T J: attention for the far, convolution for the near.

Distances enter through the attention's score (Transformer-XL's, by default), so no positions are
added unless asked for; any kind that is legal with the score may be.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.attention.context import attention_context, build_position
from harken.attention.masks import padding_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import NoPositionConfig, PositionConfig
from harken.attention.transformer_xl import TransformerXLConfig
from harken.config import MAX_KERNEL, MAX_LAYERS, bounded
from harken.layers.conformer import ConformerConfig
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ConformerBodyConfig:
    """A stack of Conformer blocks over `length` tokens at the most."""

    kind: Literal["conformer"] = "conformer"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)
    length: int = bounded(1024, at_least=1)  # the longest input, in tokens
    attention: MultiHeadConfig = MultiHeadConfig(score=TransformerXLConfig())
    position: PositionConfig = NoPositionConfig()
    feedforward: FeedForwardConfig = FeedForwardConfig(activation="silu")
    kernel: int = bounded(15, at_least=1, at_most=MAX_KERNEL)  # depthwise, in tokens
    convolution_norm: Literal["batch", "layer"] = "batch"
    dropout: float = bounded(0.1, at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        self.block()  # an even kernel is told here, not when training begins

    def block(self) -> ConformerConfig:
        return ConformerConfig(
            attention=self.attention,
            feedforward=self.feedforward,
            kernel=self.kernel,
            convolution_norm=self.convolution_norm,
            dropout=self.dropout,
        )

    def build_body(self, width: int) -> "ConformerBody":
        return ConformerBody(self, width)


class ConformerBody(nn.Module):
    """Every token sees its whole text; padding changes nothing."""

    def __init__(self, config: ConformerBodyConfig, width: int) -> None:
        super().__init__()
        self.position = build_position(config.position, config.attention, width, config.length)
        self.length: int | None = min(config.length, self.position.length or config.length)
        self.width, self.layers = self.position.width, config.layers
        self.dropout = Dropout(config.dropout)
        block = config.block()
        self.blocks = nn.ModuleList(
            block.build(self.width, config.length) for _ in range(config.layers)
        )

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T H"]:
        positions = torch.arange(inputs.shape[1], device=inputs.device)[None]
        context = attention_context(self.position, padding_mask(present), positions, positions)
        states: Tensor = self.dropout(self.position.embed(inputs, positions[..., None]))
        for block in self.blocks:
            states = block(states, context, present)
        return states
