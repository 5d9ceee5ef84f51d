"""A bidirectional encoder: tokens -> one state a token that has seen all of its text.

    B T  --embed, add segments, tell positions-->  B T J  --L blocks, every key-->  B T J

Padding changes nothing, on whichever side it stands: it is no key, and positions count only what
is present. The states of padding itself mean nothing. What is read from the states (a tag, a blank,
a vector of the whole text) is not here.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.attention.arrange import arrange, build_position
from harken.attention.legal import check_choices
from harken.attention.masks import padding_mask
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig, PositionConfig
from harken.config import bounded
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.stack import Stack
from harken.layers.transformer import TransformerConfig
from harken.models.initialise import initialise


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    """A stack of Transformer blocks over `length` tokens at the most."""

    kind: Literal["transformer"] = "transformer"
    layers: int = bounded(4, at_least=1)
    width: int = bounded(256, at_least=1)  # J
    length: int = bounded(128, at_least=1)  # the longest input, in tokens
    attention: MultiHeadConfig = MultiHeadConfig()
    position: PositionConfig = LearnedConfig()
    feedforward: FeedForwardConfig = FeedForwardConfig()
    norm: NormConfig = NormConfig()
    dropout: float = bounded(0.0, at_least=0.0, below=1.0)
    segments: int = bounded(0, at_least=0)  # kinds of token beside the vocabulary; 0 for none
    embedding_norm: bool = False  # a norm before the first block, as BERT has

    def __post_init__(self) -> None:
        check_choices(self.attention, self.position, self.width, self.length)

    def build(self, vocabulary: int, seed: int) -> "Encoder":
        return Encoder(self, vocabulary, seed)


class Encoder(nn.Module):
    """A Transformer encoder over text."""

    def __init__(self, config: EncoderConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        length = config.length
        block = TransformerConfig(
            attention=config.attention,
            feedforward=config.feedforward,
            norm=config.norm,
            dropout=config.dropout,
        )
        self.embedding = nn.Embedding(vocabulary, config.width)
        self.segment: nn.Embedding | None = None
        if config.segments > 0:
            self.segment = nn.Embedding(config.segments, config.width)
        self.position = build_position(config.position, config.attention, config.width, length)
        self.length = min(length, self.position.length or length)
        self.width = self.position.width
        self.norm = config.norm.build(self.width) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.stack = Stack(block, config.layers, self.width, length)
        initialise(self, config.layers, seed)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        present: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T J"]:
        """States of whole rows; without `segments` every token is of the first kind."""
        assert segments is None or self.segment is not None, "the model knows no segments"
        if present is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        else:
            positions = (present.cumsum(dim=1) - 1).clamp(min=0)
        arrangement = arrange(self.position, padding_mask(present), positions, positions)
        embedded: Tensor = self.embedding(tokens)
        if self.segment is not None:
            kinds = torch.zeros_like(tokens) if segments is None else segments
            embedded = embedded + self.segment(kinds)
        entered = self.dropout(self.norm(self.position.enter(embedded, positions[..., None])))
        states: Tensor = self.stack(entered, arrangement)[0]
        return states
