"""Views of a text: what a model is shown of a document each time that it meets it.

    whole       the document, to be continued from its first token
    turned      head, the rest from a random place on, the rest up to there
    shuffled    head ? piece ? piece ? …    the rest in short pieces, in any order
    corrupted   prefix ? suffix ? span      a hole, and behind it what was in the hole

A view is drawn anew at every meeting, so that a fact of the text is asked for from ever different
sides: what was only ever read in one order can only be told in that order. Turned, every place of
the text follows its head (the name that it is about) now and then. Shuffled, little but the head is
there to tell a piece by, and `?` asks for one as it asks for the answer to a question.

Of any view but a corrupted one, a share of the tokens behind the head may be hidden: the model is
told `?` in their place and is still to write them. What a text says can then not be told from the
words before it alone; it must be known of the head.

A document that does not fit is seen through a window: any stretch of it, or its head and a stretch
of the rest.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from harken.batch.corruption import CorruptionConfig, corrupt_spans, cut_windows
from harken.batch.padding import TokenBatch
from harken.batch.ragged import Numbers, Ragged, join, places, ragged_slices
from harken.config import bounded

HOLES = 2  # masks that a hole adds to its document


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewsConfig:
    """Shares of the documents that are shown otherwise than whole."""

    corrupted: float = bounded(0.5, at_least=0.0, at_most=1.0)
    rotated: float = bounded(0.0, at_least=0.0, at_most=1.0)
    shuffled: float = bounded(0.0, at_least=0.0, at_most=1.0)
    chunk: float = bounded(6.0, at_least=1.0, at_most=1e6)  # tokens of a piece, on average
    masked: float = bounded(0.0, at_least=0.0, below=1.0)  # of the tokens behind the head
    span: CorruptionConfig = field(default_factory=CorruptionConfig)

    def __post_init__(self) -> None:
        if self.corrupted + self.rotated + self.shuffled > 1:
            raise ValueError(
                f"corrupted {self.corrupted}, turned {self.rotated} and shuffled {self.shuffled} "
                "are more than all texts"
            )

    def seen(self, lengths: Numbers) -> Numbers:
        """How long the longest view of a document is, with its masks; on average, if shuffled."""
        pieces = np.ceil(lengths / self.chunk).astype(np.int64) if self.shuffled else 0
        return lengths + np.maximum(HOLES, pieces)


class Documents(NamedTuple):
    """Texts or views of them, and how many tokens at the front of each are its head."""

    texts: Ragged
    heads: Numbers

    def take(self, chosen: Numbers) -> "Documents":
        return Documents(self.texts.take(chosen), self.heads[chosen])


def draw_views(
    documents: Documents, config: ViewsConfig, most: int, mask: int, random: np.random.Generator
) -> Documents:
    """One view of each document, of at most `most` tokens and `HOLES` masks; in another order.

    The head of a corrupted view is the whole of it, for its hole is what it hides.
    """
    drawn = random.random(len(documents.heads))
    ends = np.cumsum((config.corrupted, config.rotated, config.shuffled))
    kinds = np.searchsorted(ends, drawn, side="right")
    corrupted, turned, shuffled, whole = (
        documents.take(np.flatnonzero(kinds == kind)) for kind in range(4)
    )
    holed = cut_windows(corrupted.texts, most, random)
    seen = [
        cut_windows(whole.texts, most, random),
        turn(turned, most, random),
        shuffle(shuffled, config.chunk, most + HOLES, mask, random),
        corrupt_spans(holed, config.span, mask, random),
    ]
    heads = [whole.heads, turned.heads, shuffled.heads, seen[-1].lengths]
    return Documents(join(seen), np.concatenate(heads))


def hide(
    batch: TokenBatch, heads: Numbers, share: float, mask: int, random: np.random.Generator
) -> TokenBatch:
    """Inputs behind the heads, by lot, as masks; what is wanted stays as it is."""
    rows, places = batch.inputs.shape
    behind = np.arange(places) >= heads[:, None]
    hidden = torch.from_numpy(behind & (random.random((rows, places)) < share))
    return batch._replace(inputs=batch.inputs.masked_fill(hidden, mask))


def turn(documents: Documents, most: int, random: np.random.Generator) -> Ragged:
    """Heads, each with the rest of its text begun at a random place; at most `most` tokens."""
    texts, heads = documents
    rest = np.maximum(texts.lengths - heads, 1)
    shifts = random.integers(0, rest)
    lengths = np.minimum(texts.lengths, most)
    owner, place = places(lengths)
    behind = place - heads[owner]
    turned = heads[owner] + (behind + shifts[owner]) % rest[owner]
    source = np.where(behind < 0, place, turned) + texts.starts[owner]
    return Ragged(texts.values[source], lengths)


def shuffle(
    documents: Documents, piece: float, most: int, mask: int, random: np.random.Generator
) -> Ragged:
    """Heads, each with the pieces of the rest in any order, a mask before each; cut to `most`."""
    texts, heads = documents
    owner, place = places(texts.lengths)
    behind = place - heads[owner]
    begins = (behind >= 0) & ((behind == 0) | (random.random(len(owner)) < 1 / piece))
    # A head is a piece too, which is never moved.
    number = np.cumsum(begins | (place == 0)) - 1
    lots = random.random(len(texts.values))[number]
    order = np.lexsort((place, np.where(behind < 0, -1.0, lots), owner))
    begins = begins[order]
    values = np.insert(texts.values[order], np.flatnonzero(begins), mask)
    lengths = texts.lengths + np.bincount(owner[order][begins], minlength=len(texts.lengths))
    whole = Ragged(values, lengths)
    return ragged_slices(whole.values, whole.starts, np.minimum(lengths, most))
