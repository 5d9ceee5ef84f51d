"""A bidirectional encoder: tokens -> one state a token that has seen all of its text.

    B T  --embed, add segments-->  B T J  --body-->  B T J

What is read from the states (a tag, a blank, a vector of the whole text) is not here.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.embedding import SegmentEmbedding, TokenEmbedding
from harken.models.body import TransformerBodyConfig, check_body
from harken.models.initialize import initialize
from harken.models.inputs import check_rows, check_shape


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig(TransformerBodyConfig):
    """A Transformer body over a vocabulary."""

    width: int = bounded(256, at_least=1)  # J
    segments: int = bounded(0, at_least=0)  # kinds of token beside the vocabulary; 0 for none

    def __post_init__(self) -> None:
        check_body(self, self.width)

    def build(self, vocabulary: int, seed: int) -> "Encoder":
        return Encoder(self, vocabulary, seed)


class Encoder(nn.Module):
    """A Transformer encoder over text."""

    def __init__(self, config: EncoderConfig, vocabulary: int, seed: int) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.segment: nn.Embedding | None = None
        if config.segments > 0:
            self.segment = SegmentEmbedding(config.segments, config.width)
        self.body = config.build_body(config.width)
        self.length, self.width = self.body.length, self.body.width
        initialize(self, config.layers, seed)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        present: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T J"]:
        """States of whole rows; without `segments` every token is of the first kind."""
        check_rows("tokens", tokens, self.length)
        if segments is not None and self.segment is None:
            raise ValueError("segments: the model was built without segments")
        if present is not None:
            check_shape("present", present, *tokens.shape)
        embedded: Tensor = self.embedding(tokens)
        if self.segment is not None:
            kinds = torch.zeros_like(tokens) if segments is None else segments
            embedded = embedded + self.segment(kinds)
        states: Tensor = self.body(embedded, present)
        return states
