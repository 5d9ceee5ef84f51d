"""The part between word vectors and read-out: B T J -> B T H, every token seeing its whole text.

    tanh, gru, lstm     states that follow one another, one way or both
    stride2, gated      windows of neighbours
    transformer         attention
    conformer           attention and windows of neighbours

One line of a recipe chooses (`body.kind = "…"`); taggers, blank models and encoders are built on
any. Padding stands on the right and changes nothing. Models that write from left to right are in
`language_model.py`, `fixed_state.py` and the decoders.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.attention.compatibility import check_choices
from harken.attention.context import attention_context, build_position
from harken.attention.masks import padding_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig, PositionConfig
from harken.config import MAX_LAYERS, bounded
from harken.layers.convolution import ConvPyramidConfig, GatedConvolutionConfig
from harken.layers.dropout import Dropout
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.recurrent import GRUConfig, LSTMConfig, Recurrent, RecurrentConfig, TanhConfig
from harken.layers.stack import Stack
from harken.layers.transformer import TransformerConfig
from harken.models.conformer_body import ConformerBody, ConformerBodyConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerBodyConfig:
    """A stack of Transformer blocks over `length` tokens at the most."""

    kind: Literal["transformer"] = "transformer"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)
    length: int = bounded(128, at_least=1)  # the longest input, in tokens
    attention: MultiHeadConfig = MultiHeadConfig()
    position: PositionConfig = LearnedConfig()
    feedforward: FeedForwardConfig = FeedForwardConfig()
    norm: NormConfig = NormConfig()
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)
    entrance_norm: bool = False  # a norm before the first block, as BERT has

    def build_body(self, width: int) -> "TransformerBody":
        return TransformerBody(self, width)


BodyConfig = (
    TanhConfig
    | GRUConfig
    | LSTMConfig
    | ConvPyramidConfig
    | GatedConvolutionConfig
    | TransformerBodyConfig
    | ConformerBodyConfig
)


def check_body(config: BodyConfig, width: int) -> None:
    """Refuse choices that do not fit the width of the word vectors."""
    if isinstance(config, TransformerBodyConfig | ConformerBodyConfig):
        check_choices(config.attention, config.position, width, config.length)
    elif isinstance(config, GatedConvolutionConfig) and config.causal:
        raise ValueError("a body sees both sides; set causal = false")
    elif isinstance(config, RecurrentConfig):
        config.hidden_width(width)


def build_body(config: BodyConfig, width: int) -> "Body":
    """The module of a choice, over vectors of this width."""
    if isinstance(config, TransformerBodyConfig | ConformerBodyConfig):
        return config.build_body(width)
    if isinstance(config, RecurrentConfig):
        return RecurrentBody(config, width)
    return ConvolutionalBody(config, width)


class TransformerBody(nn.Module):
    """Attention over all of a text."""

    def __init__(self, config: TransformerBodyConfig, width: int) -> None:
        super().__init__()
        block = TransformerConfig(
            attention=config.attention,
            feedforward=config.feedforward,
            norm=config.norm,
            dropout=config.dropout,
        )
        self.position = build_position(config.position, config.attention, width, config.length)
        self.length: int | None = min(config.length, self.position.length or config.length)
        self.width = self.position.width
        self.norm = config.norm.build(self.width) if config.entrance_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.stack = Stack(block, config.layers, self.width, config.length)
        self.layers = config.layers

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T H"]:
        """Padding is no key, on whichever side it stands; its own states mean nothing."""
        if present is None:
            positions = torch.arange(inputs.shape[1], device=inputs.device)[None]
        else:
            positions = (present.cumsum(dim=1) - 1).clamp(min=0)
        context = attention_context(self.position, padding_mask(present), positions, positions)
        entered = self.dropout(self.norm(self.position.embed(inputs, positions[..., None])))
        states: Tensor = self.stack(entered, context)[0]
        return states


class RecurrentBody(nn.Module):
    """States of one way or both side by side."""

    def __init__(self, config: RecurrentConfig, width: int) -> None:
        super().__init__()
        self.recurrent: Recurrent = config.build(width)
        self.width, self.layers = self.recurrent.width, config.layers
        self.length: int | None = None

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T H"]:
        states: Tensor = self.recurrent(inputs, present)[0]
        return states


class ConvolutionalBody(nn.Module):
    """A pyramid with its way back up, or gated layers."""

    def __init__(self, config: ConvPyramidConfig | GatedConvolutionConfig, width: int) -> None:
        super().__init__()
        self.convolutions = config.build(width)
        self.width, self.layers = width, config.layers
        self.length: int | None = None

    def forward(
        self, inputs: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T H"]:
        return cast(Tensor, self.convolutions(inputs, present))


Body = TransformerBody | ConformerBody | RecurrentBody | ConvolutionalBody
