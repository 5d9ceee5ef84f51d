"""Cloze models: predict missing words from the words on both sides.

    rnn      logits[w] = e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1], where h→ runs from the left and h← from
             the right: neither reads word t, so one pass predicts all words of each row
    masked   logits[w] = e[w]·W·h[t], where h is an encoder over words with <mask> at the blanks
             (BERT): a prediction does not see the words at the other blanks of its row

e is the embedding table. Every row gets an end token before its first word and after its last.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
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
from harken.models.inputs import Present, TokenIds, check_rows, check_shape
from harken.models.start import StartConfig

END_TOKENS = 2  # per row: before the first word and after the last


@dataclass(frozen=True, kw_only=True, slots=True)
class BiRNNClozeConfig(StartConfig):
    """A forward RNN over the words before a blank, and a backward RNN over those after it."""

    kind: Literal["rnn"] = "rnn"
    predicts_all_words: ClassVar[bool] = True  # one pass predicts every word of each row
    max_length: ClassVar[int | None] = None  # maximum number of words in a row; None for no limit
    width: int = bounded(192, at_least=1)  # width J of the embeddings
    cell: RecurrentConfig = LSTMConfig()  # the recurrent layers of each direction
    dropout: float = bounded(0.4, at_least=0.0, below=1.0)  # of embeddings and of states

    def __post_init__(self) -> None:
        if self.cell.direction != "forward":
            raise ValueError(
                f"cell.direction: expected 'forward', got {self.cell.direction!r}. "
                "The model adds the backward RNN itself"
            )

    def build(self, vocabulary: int, *, mask: int, end: int, seed: int) -> "BiRNNCloze":
        return BiRNNCloze(self, vocabulary, end=end, seed=seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedLMConfig(StartConfig):
    """A masked language model: an encoder over the words, with a mask token at the blanks."""

    kind: Literal["masked"] = "masked"
    predicts_all_words: ClassVar[bool] = False  # <mask> replaces the words at blanks
    width: int = bounded(192, at_least=1)  # width J of the embeddings
    encoder: EncoderConfig = TransformerEncoderConfig(layers=3, dropout=0.2)  # over the words
    dropout: float = bounded(0.2, at_least=0.0, below=1.0)  # of embeddings and of states

    def __post_init__(self) -> None:
        check_encoder(self.encoder, self.width)
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(
                f"encoder: expected a maximum length of at least {END_TOKENS + 1} (a word and two "
                f"end tokens), got {self.max_length + END_TOKENS}; raise encoder.max_length or "
                "the span of encoder.position"
            )

    @property
    def max_length(self) -> int | None:
        """The maximum number of words in a row; None for no limit."""
        with torch.device("meta"):  # positions can have a lower limit than the config
            limit = build_encoder(self.encoder, self.width).max_length
        return None if limit is None else limit - END_TOKENS

    def build(self, vocabulary: int, *, mask: int, end: int, seed: int) -> "MaskedLM":
        return MaskedLM(self, vocabulary, mask=mask, end=end, seed=seed)


ClozeConfig = BiRNNClozeConfig | MaskedLMConfig


class ClozeModel(nn.Module):
    """Base class of both models. Subclasses implement `states`."""

    embedding: TokenEmbedding

    def forward(self, tokens: TokenIds, present: Present, blanks: Present) -> Float[Tensor, "N V"]:
        """Return the logits of the word at each of the N blanks, row by row."""
        return self.logits(self.states(tokens, present, blanks))

    def states(self, tokens: TokenIds, present: Present, blanks: Present) -> Float[Tensor, "N J"]:
        """Return the vector of each blank, which `logits` multiplies with the embeddings."""
        raise NotImplementedError

    def logits(self, states: Float[Tensor, "N J"]) -> Float[Tensor, "N V"]:
        return F.linear(states, self.embedding.weight)


def check_blanks(tokens: Tensor, present: Tensor, blanks: Tensor, limit: int | None = None) -> None:
    """Raise an error unless all tensors have the same shape and at most `limit` words per row."""
    check_rows("tokens", tokens, limit)
    check_shape("present", present, *tokens.shape)
    check_shape("blanks", blanks, *tokens.shape)


def add_end_tokens(tokens: TokenIds, present: Present, end: int) -> Int[Tensor, "B time"]:
    """Return the rows with `end` before the first word, after the last, and as padding."""
    return F.pad(tokens.masked_fill(~present, end), (1, 1), value=end)


def init_lecun_normal(embedding: nn.Embedding, projections: Iterable[nn.Linear], seed: int) -> None:
    """Draw weights with std 1/√(fan in): smaller weights delay learning by hundreds of steps."""
    generator = torch.Generator().manual_seed(seed)
    for weight in (embedding.weight, *(projection.weight for projection in projections)):
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)


class BiRNNCloze(ClozeModel):
    """e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]; tokens at blanks are context for the other blanks."""

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
        init_lecun_normal(self.embedding, (self.from_left, self.from_right), seed)

    def states(self, tokens: TokenIds, present: Present, blanks: Present) -> Float[Tensor, "N J"]:
        check_blanks(tokens, present, blanks)
        embedded: Tensor = self.dropout(self.embedding(add_end_tokens(tokens, present, self.end)))
        # left[:, t] has read the words before word t, right[:, t] the words after it.
        left: Tensor = self.forwards(embedded[:, :-2], present)[0]
        right: Tensor = self.backwards(embedded[:, 2:], present)[0]
        from_left: Tensor = self.from_left(self.dropout(left[blanks]))
        from_right: Tensor = self.from_right(self.dropout(right[blanks]))
        return from_left + from_right


class MaskedLM(ClozeModel):
    """e[w]·W·h[t] over words with <mask> at the blanks; the model does not see tokens at blanks."""

    def __init__(
        self, config: MaskedLMConfig, vocabulary: int, *, mask: int, end: int, seed: int
    ) -> None:
        super().__init__()
        self.mask, self.end = mask, end
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.backbone = build_encoder(config.encoder, config.width)
        self.out = nn.Linear(self.backbone.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        initialize(self, self.backbone.layers, seed)
        init_lecun_normal(self.embedding, (self.out,), seed)

    def states(self, tokens: TokenIds, present: Present, blanks: Present) -> Float[Tensor, "N J"]:
        limit = self.backbone.max_length
        check_blanks(tokens, present, blanks, None if limit is None else limit - END_TOKENS)
        masked = add_end_tokens(tokens.masked_fill(blanks, self.mask), present, self.end)
        embedded: Tensor = self.dropout(self.embedding(masked))
        # Add the two end tokens to `present`; since padding is on the right, they can be prepended.
        states: Tensor = self.backbone(embedded, F.pad(present, (END_TOKENS, 0), value=True))
        projected: Tensor = self.out(self.dropout(states[:, 1:-1][blanks]))
        return projected
