"""Cloze models: predict blanked words from the words on both sides.

    rnn      logits[w] = e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]
             h→ runs from the left, h← from the right. They meet only in the sum, so word t never
             enters its own prediction, and one pass predicts every word of a row
    masked   logits[w] = e[w]·W·h[t],  h any encoder over words with <mask> at the blanks (BERT);
             the blanks of a row hide each other, so predicting each word takes a row per word

e is the embedding table, for input and output. A row has an end symbol before its first word and
after its last, so that the states at the edges are learned. `tasks/fill.py` chooses the blanks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.embedding import TokenEmbedding
from harken.layers.recurrent import LSTMConfig, Recurrent, RecurrentConfig
from harken.models.encoders import (
    EncoderConfig,
    TransformerEncoderConfig,
    build_encoder,
    check_encoder,
)
from harken.models.initialize import initialize
from harken.models.inputs import check_rows, check_shape

EDGES = 2  # end symbols that a masked model reads in addition to the words of a row


@dataclass(frozen=True, kw_only=True, slots=True)
class BiRNNClozeConfig:
    """Two stacks of cells, one per direction."""

    kind: Literal["rnn"] = "rnn"
    width: int = bounded(192, at_least=1)  # J, of embeddings
    cell: RecurrentConfig = LSTMConfig()
    dropout: float = bounded(0.4, at_least=0.0, below=1.0)  # of word vectors and of h, in training

    def __post_init__(self) -> None:
        if self.cell.direction != "forward":
            raise ValueError(
                f"direction {self.cell.direction!r}: the cells are built once for each direction "
                "already; leave it out"
            )

    @property
    def together(self) -> bool:
        """Whether all words of a row can be predicted at once without hiding each other."""
        return True

    @property
    def length(self) -> int | None:
        """The longest row, in words; None for any length."""
        return None

    def build(self, vocabulary: int, *, mask: int, end: int, seed: int) -> "BiRNNCloze":
        return BiRNNCloze(self, vocabulary, end=end, seed=seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedLMConfig:
    """Any bidirectional encoder."""

    kind: Literal["masked"] = "masked"
    width: int = bounded(192, at_least=1)  # J, of embeddings
    encoder: EncoderConfig = TransformerEncoderConfig(layers=3, dropout=0.2)
    dropout: float = bounded(0.2, at_least=0.0, below=1.0)  # of word vectors and of h, in training

    def __post_init__(self) -> None:
        check_encoder(self.encoder, self.width)
        if self.length is not None and self.length < 1:
            raise ValueError(
                f"an encoder of length {self.length + EDGES} has no room for a word between the "
                f"two end symbols; make it at least {EDGES + 1}"
            )

    @property
    def together(self) -> bool:
        """Whether all words of a row can be predicted at once without hiding each other."""
        return False

    @property
    def length(self) -> int | None:
        """The longest row, in words; None for any length."""
        with torch.device("meta"):  # positions may be fewer than the encoder's own length
            limit = build_encoder(self.encoder, self.width).length
        return None if limit is None else limit - EDGES

    def build(self, vocabulary: int, *, mask: int, end: int, seed: int) -> "MaskedLM":
        return MaskedLM(self, vocabulary, mask=mask, end=end, seed=seed)


ClozeConfig = BiRNNClozeConfig | MaskedLMConfig


class ClozeModel(nn.Module):
    """Base of both models; they differ in `states`."""

    embedding: TokenEmbedding

    def forward(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], blanks: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "N V"]:
        """Return the logits of the word at every blank, row by row."""
        return self.logits(self.states(tokens, present, blanks))

    def states(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], blanks: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "N J"]:
        """Return the vector that is compared with the embeddings at every blank, row by row."""
        raise NotImplementedError

    def logits(self, states: Float[Tensor, "N J"]) -> Float[Tensor, "N V"]:
        return F.linear(states, self.embedding.weight)


def check_blanks(tokens: Tensor, present: Tensor, blanks: Tensor, limit: int | None = None) -> None:
    """Raise unless the three have one shape and no row is too long."""
    check_rows("tokens", tokens, limit)
    check_shape("present", present, *tokens.shape)
    check_shape("blanks", blanks, *tokens.shape)


def between_ends(
    tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], end: int
) -> Int[Tensor, "B time"]:
    """Return rows with `end` before the first word, after the last, and at all padding."""
    return F.pad(tokens.masked_fill(~present, end), (1, 1), value=end)


def init_unit_length(table: nn.Embedding, projections: Iterable[nn.Linear], seed: int) -> None:
    """Draw word vectors of length about one, and projections that preserve lengths.

    With the small weights that suit a deep stack, logits that are a product of all three stay flat
    for long: on a toy text neither model used a word six places away within 150 steps.
    """
    generator = torch.Generator().manual_seed(seed)
    for weight in (table.weight, *(projection.weight for projection in projections)):
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)


class BiRNNCloze(ClozeModel):
    """e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]; the tokens at blanks are read too."""

    def __init__(self, config: BiRNNClozeConfig, vocabulary: int, *, end: int, seed: int) -> None:
        super().__init__()
        self.end = end
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.forwards: Recurrent = config.cell.build(config.width)
        self.backwards: Recurrent = replace(config.cell, direction="backward").build(config.width)
        self.from_left = nn.Linear(self.forwards.width, config.width, bias=False)
        self.from_right = nn.Linear(self.backwards.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        initialize(self, config.cell.layers, seed)
        init_unit_length(self.embedding, (self.from_left, self.from_right), seed)

    def states(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], blanks: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "N J"]:
        check_blanks(tokens, present, blanks)
        embedded: Tensor = self.dropout(self.embedding(between_ends(tokens, present, self.end)))
        # Place t of either stack is blank t's neighbor: one row starts an end symbol earlier, the
        # other a word later.
        left: Tensor = self.forwards(embedded[:, :-2], present)[0]
        right: Tensor = self.backwards(embedded[:, 2:], present)[0]
        from_left: Tensor = self.from_left(self.dropout(left[blanks]))
        from_right: Tensor = self.from_right(self.dropout(right[blanks]))
        return from_left + from_right


class MaskedLM(ClozeModel):
    """e[w]·W·h[t] over words with <mask> at the blanks; the tokens at blanks are not read."""

    def __init__(
        self, config: MaskedLMConfig, vocabulary: int, *, mask: int, end: int, seed: int
    ) -> None:
        super().__init__()
        self.mask, self.end = mask, end
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.encoder = build_encoder(config.encoder, config.width)
        self.out = nn.Linear(self.encoder.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        initialize(self, self.encoder.layers, seed)
        init_unit_length(self.embedding, (self.out,), seed)

    def states(
        self, tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], blanks: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "N J"]:
        limit = self.encoder.length
        check_blanks(tokens, present, blanks, None if limit is None else limit - EDGES)
        masked = between_ends(tokens.masked_fill(blanks, self.mask), present, self.end)
        embedded: Tensor = self.dropout(self.embedding(masked))
        states: Tensor = self.encoder(embedded, F.pad(present, (EDGES, 0), value=True))
        chosen: Tensor = self.out(self.dropout(states[:, 1:-1][blanks]))
        return chosen
