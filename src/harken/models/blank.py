"""A word from the words on both of its sides: tokens with blanks -> logits of what stood there.

    rnn      scores[w] = e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]
             h→ a stack that reads from the left, h← another that reads from the right; the two
             never meet below the sum, so no depth lets word t into what is said of place t, and
             one pass scores every place of a row
    masked   scores[w] = e[w]·W·h[t],  h any body over the words, with <mask> at the blanks (BERT);
             blanks of one row hide each other, so one word at a time takes one row each

e is the table of embeddings, read from and scored with. A row is read with an end symbol before its
first word and behind its last: what stands at an edge is learnt like any other state (h→[-1] is the
state after <end>, not zeros). What is blanked and how it is learnt is in `tasks/fill.py`.
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
from harken.models.body import BodyConfig, TransformerBodyConfig, build_body, check_body
from harken.models.initialize import initialize
from harken.models.inputs import check_rows, check_shape

EDGES = 2  # end symbols that a masked model reads beside the words of a row


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentBlankConfig:
    """Two stacks of cells, one a direction."""

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
        """Whether all words of a row can be asked for at once without hiding each other."""
        return True

    @property
    def length(self) -> int | None:
        """The most words that are seen at once; None for any number."""
        return None

    def build(self, vocabulary: int, *, mask: int, end: int, seed: int) -> "RecurrentBlank":
        return RecurrentBlank(self, vocabulary, end=end, seed=seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedBlankConfig:
    """Any body that sees both sides."""

    kind: Literal["masked"] = "masked"
    width: int = bounded(192, at_least=1)  # J, of embeddings
    body: BodyConfig = TransformerBodyConfig(layers=3, dropout=0.2)
    dropout: float = bounded(0.2, at_least=0.0, below=1.0)  # of word vectors and of h, in training

    def __post_init__(self) -> None:
        check_body(self.body, self.width)
        if self.length is not None and self.length < 1:
            raise ValueError(
                f"a body of length {self.length + EDGES} has no room for a word between its two "
                f"ends; make it at least {EDGES + 1}"
            )

    @property
    def together(self) -> bool:
        """Whether all words of a row can be asked for at once without hiding each other."""
        return False

    @property
    def length(self) -> int | None:
        """The most words that are seen at once; None for any number."""
        with torch.device("meta"):  # positions may be fewer than the body's own length
            longest = build_body(self.body, self.width).length
        return None if longest is None else longest - EDGES

    def build(self, vocabulary: int, *, mask: int, end: int, seed: int) -> "MaskedBlank":
        return MaskedBlank(self, vocabulary, mask=mask, end=end, seed=seed)


BlankConfig = RecurrentBlankConfig | MaskedBlankConfig


def between_ends(
    tokens: Int[Tensor, "B T"], present: Bool[Tensor, "B T"], end: int
) -> Int[Tensor, "B time"]:
    """Rows two longer: `end` before the first word, behind the last, and at all padding."""
    return F.pad(tokens.masked_fill(~present, end), (1, 1), value=end)


def keep_lengths(table: nn.Embedding, maps: Iterable[nn.Linear], seed: int) -> None:
    """Word vectors of length about one, and maps that leave a vector about as long as it was.

    With the small weights that suit a deep stack, scores that are a product of all three stay level
    for long: on a toy text neither kind of model saw a word six places away within 150 steps; with
    these both do.
    """
    generator = torch.Generator().manual_seed(seed)
    for weight in (table.weight, *(one.weight for one in maps)):
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)


class RecurrentBlank(nn.Module):
    """e[w]·W→·h→[t-1] + e[w]·W←·h←[t+1]."""

    def __init__(
        self, config: RecurrentBlankConfig, vocabulary: int, *, end: int, seed: int
    ) -> None:
        super().__init__()
        self.end = end
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.forwards: Recurrent = config.cell.build(config.width)
        self.backwards: Recurrent = replace(config.cell, direction="backward").build(config.width)
        self.from_left = nn.Linear(self.forwards.width, config.width, bias=False)
        self.from_right = nn.Linear(self.backwards.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        initialize(self, config.cell.layers, seed)
        keep_lengths(self.embedding, (self.from_left, self.from_right), seed)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        present: Bool[Tensor, "B T"],
        blanks: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "N V"]:
        """Return the logits of the word at every blank, row by row."""
        return self.logits(self.states(tokens, present, blanks))

    def states(
        self,
        tokens: Int[Tensor, "B T"],
        present: Bool[Tensor, "B T"],
        blanks: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "N J"]:
        """W→·h→[t-1] + W←·h←[t+1] of every blank t, row by row; tokens at blanks are read too."""
        check_rows("tokens", tokens)
        check_shape("present", present, *tokens.shape)
        check_shape("blanks", blanks, *tokens.shape)
        embedded: Tensor = self.dropout(self.embedding(between_ends(tokens, present, self.end)))
        # Place t of either stack is blank t's neighbour: one row begins an end symbol earlier, the
        # other a word later, and both are as long as the row of words.
        left: Tensor = self.forwards(embedded[:, :-2], present)[0]
        right: Tensor = self.backwards(embedded[:, 2:], present)[0]
        from_left: Tensor = self.from_left(self.dropout(left[blanks]))
        from_right: Tensor = self.from_right(self.dropout(right[blanks]))
        return from_left + from_right

    def logits(self, states: Float[Tensor, "N J"]) -> Float[Tensor, "N V"]:
        return F.linear(states, self.embedding.weight)


class MaskedBlank(nn.Module):
    """e[w]·W·h[t] over words of which some are masked."""

    def __init__(
        self, config: MaskedBlankConfig, vocabulary: int, *, mask: int, end: int, seed: int
    ) -> None:
        super().__init__()
        self.mask, self.end = mask, end
        self.embedding = TokenEmbedding(vocabulary, config.width)
        self.body = build_body(config.body, config.width)
        self.out = nn.Linear(self.body.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        initialize(self, self.body.layers, seed)
        keep_lengths(self.embedding, (self.out,), seed)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        present: Bool[Tensor, "B T"],
        blanks: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "N V"]:
        """Return the logits of the word at every blank, row by row."""
        return self.logits(self.states(tokens, present, blanks))

    def states(
        self,
        tokens: Int[Tensor, "B T"],
        present: Bool[Tensor, "B T"],
        blanks: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "N J"]:
        """W·h[t] of every blank t, row by row; what `tokens` says at any blank is not read."""
        limit = self.body.length
        check_rows("tokens", tokens, None if limit is None else limit - EDGES)
        check_shape("present", present, *tokens.shape)
        check_shape("blanks", blanks, *tokens.shape)
        read = between_ends(tokens.masked_fill(blanks, self.mask), present, self.end)
        embedded: Tensor = self.dropout(self.embedding(read))
        states: Tensor = self.body(embedded, F.pad(present, (EDGES, 0), value=True))
        chosen: Tensor = self.out(self.dropout(states[:, 1:-1][blanks]))
        return chosen

    def logits(self, states: Float[Tensor, "N J"]) -> Float[Tensor, "N V"]:
        return F.linear(states, self.embedding.weight)


BlankModel = RecurrentBlank | MaskedBlank
