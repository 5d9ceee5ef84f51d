"""Encoders: B T J -> B T H, a state for every token.

    tanh, gru, lstm     recurrent, unidirectional or bidirectional
    stride2, gated,
    ngrams              convolutions, whose kernels limit the context of a token
    transformer         attention
    conformer           attention and convolutions

Padding is on the right, or for a Transformer on either side. It does not affect real tokens.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.compatibility import check_compatibility
from harken.attention.context import attention_context, build_position
from harken.attention.masks import padding_mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.attention.positions import LearnedConfig, PositionConfig
from harken.config import MAX_LAYERS, bounded
from harken.layers.conformer import ConformerBlock, ConformerEncoderConfig
from harken.layers.convolution import (
    ConvPyramidConfig,
    GatedConvolutionConfig,
    NGramConfig,
    NGrams,
)
from harken.layers.dropout import Dropout
from harken.layers.embedding import SegmentEmbedding, TokenEmbedding
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.recurrent import Recurrent, RecurrentConfig
from harken.layers.transformer import Stack
from harken.models.initialize import initialize
from harken.models.inputs import Present, TokenIds, check_rows, check_shape


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerEncoderConfig:
    """A stack of Transformer blocks."""

    kind: Literal["transformer"] = "transformer"
    layers: int = bounded(4, at_least=1, at_most=MAX_LAYERS)  # number of blocks
    max_length: int = bounded(128, at_least=1)  # maximum number of input positions
    attention: MultiHeadConfig = MultiHeadConfig()  # self-attention
    position: PositionConfig = LearnedConfig()  # positional encoding
    feedforward: FeedForwardConfig = FeedForwardConfig()  # feed-forward layer of each block
    norm: NormConfig = NormConfig()  # normalization layers
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the input and of each sublayer
    embedding_norm: bool = False  # whether to normalize the inputs of the first block, as in BERT


EncoderConfig = (
    RecurrentConfig
    | ConvPyramidConfig
    | GatedConvolutionConfig
    | NGramConfig
    | TransformerEncoderConfig
    | ConformerEncoderConfig
)


def check_encoder(config: EncoderConfig, width: int) -> None:
    """Raise an error if the encoder cannot be built for inputs of this width."""
    if isinstance(config, TransformerEncoderConfig | ConformerEncoderConfig):
        check_compatibility(config.attention, config.position, width, config.max_length)
    elif isinstance(config, GatedConvolutionConfig) and config.causal:
        raise ValueError("encoder.causal: expected false in an encoder, got true")
    elif isinstance(config, RecurrentConfig):
        config.hidden_width(width)  # raises an error for an odd width


def build_encoder(config: EncoderConfig, width: int) -> "Encoder":
    """Build an encoder for inputs of this width."""
    if isinstance(config, TransformerEncoderConfig):
        return TransformerEncoder(config, width)
    if isinstance(config, ConformerEncoderConfig):
        return ConformerEncoder(config, width)
    if isinstance(config, RecurrentConfig):
        return RNNEncoder(config, width)
    if isinstance(config, NGramConfig):
        return config.build(width)
    return ConvEncoder(config, width)


Inputs = Float[Tensor, "B T J"]


class AttentionEncoder(nn.Module):
    """Base class of encoders with attention: the positional encoding and the attention context."""

    def __init__(
        self, config: TransformerEncoderConfig | ConformerEncoderConfig, width: int
    ) -> None:
        super().__init__()
        length = config.max_length
        self.position = build_position(config.position, config.attention, width, length)
        self.max_length: int | None = min(length, self.position.max_length or length)
        self.width, self.layers = self.position.width, config.layers
        self.norm: nn.Module = nn.Identity()
        self.dropout = Dropout(config.dropout)

    def embed(
        self, inputs: Inputs, positions: Int[Tensor, "#B T"], present: Present | None
    ) -> tuple[Float[Tensor, "B T H"], AttentionContext]:
        """Return the input of the first block, and the attention context of all blocks."""
        context = attention_context(self.position, padding_mask(present), positions, positions)
        embedded = self.position.embed(inputs, positions[..., None])
        return self.dropout(self.norm(embedded)), context


class TransformerEncoder(AttentionEncoder):
    """Transformer blocks without a causal mask."""

    def __init__(self, config: TransformerEncoderConfig, width: int) -> None:
        super().__init__(config, width)
        if config.embedding_norm:
            self.norm = config.norm.build(self.width)
        self.stack = Stack(config, config.layers, self.width, config.max_length)

    def forward(self, inputs: Inputs, present: Present | None = None) -> Float[Tensor, "B T H"]:
        if present is None:
            positions = torch.arange(inputs.shape[1], device=inputs.device)[None]
        else:
            positions = (present.cumsum(dim=1) - 1).clamp(min=0)
        return cast(Tensor, self.stack(*self.embed(inputs, positions, present))[0])


class ConformerEncoder(AttentionEncoder):
    """Conformer blocks."""

    def __init__(self, config: ConformerEncoderConfig, width: int) -> None:
        super().__init__(config, width)
        blocks = (ConformerBlock(config, self.width) for _ in range(config.layers))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, inputs: Inputs, present: Present | None = None) -> Float[Tensor, "B T H"]:
        positions = torch.arange(inputs.shape[1], device=inputs.device)[None]
        states, context = self.embed(inputs, positions, present)
        for block in self.blocks:
            states = block(states, context, present)
        return states


class RNNEncoder(nn.Module):
    """An RNN; a bidirectional one concatenates the states of both directions."""

    max_length: int | None = None

    def __init__(self, config: RecurrentConfig, width: int) -> None:
        super().__init__()
        self.recurrent: Recurrent = config.build(width)
        self.width, self.layers = self.recurrent.width, config.layers

    def forward(self, inputs: Inputs, present: Present | None = None) -> Float[Tensor, "B T H"]:
        return cast(Tensor, self.recurrent(inputs, present)[0])


class ConvEncoder(nn.Module):
    """A convolutional pyramid, or gated convolutions."""

    max_length: int | None = None

    def __init__(self, config: ConvPyramidConfig | GatedConvolutionConfig, width: int) -> None:
        super().__init__()
        self.convolutions = config.build(width)
        self.width, self.layers = width, config.layers

    def forward(self, inputs: Inputs, present: Present | None = None) -> Float[Tensor, "B T H"]:
        return cast(Tensor, self.convolutions(inputs, present))


Encoder = TransformerEncoder | ConformerEncoder | RNNEncoder | ConvEncoder | NGrams


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEncoderConfig(TransformerEncoderConfig):
    """A Transformer encoder with token embeddings, such as BERT."""

    width: int = bounded(256, at_least=1)  # width J of the embeddings
    segments: int = bounded(0, at_least=0)  # number of segment embeddings; 0 for none

    def __post_init__(self) -> None:
        check_encoder(self, self.width)

    def build(self, vocabulary: int, seed: int) -> "TextEncoder":
        return TextEncoder(self, vocabulary, seed)


class TextEncoder(nn.Module):
    """Embeddings and a Transformer encoder: tokens B T -> states B T H."""

    def __init__(self, config: TextEncoderConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.segment: nn.Embedding | None = None
        if config.segments > 0:
            self.segment = SegmentEmbedding(config.segments, config.width)
        self.backbone = TransformerEncoder(config, config.width)
        self.max_length, self.width = self.backbone.max_length, self.backbone.width
        initialize(self, config.layers, seed)

    def forward(
        self,
        tokens: TokenIds,
        *,
        present: Present | None = None,
        segments: TokenIds | None = None,
        extra: Inputs | None = None,
    ) -> Float[Tensor, "B T H"]:
        """Return the states; without `segments` every token is in segment 0.

        The vectors `extra` are added to the embeddings.
        """
        check_rows("tokens", tokens, self.max_length)
        if segments is not None and self.segment is None:
            raise ValueError("segments: the model was built without segment embeddings")
        if present is not None:
            check_shape("present", present, *tokens.shape)
        embedded: Tensor = self.embedding(tokens)
        if self.segment is not None:
            segments = torch.zeros_like(tokens) if segments is None else segments
            embedded = embedded + self.segment(segments)
        if extra is not None:
            embedded = embedded + extra
        return cast(Tensor, self.backbone(embedded, present))
