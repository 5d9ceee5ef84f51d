"""Views of a text: what a model is shown of a document each time that it meets it.

    whole       the document, to be continued from its first token
    turned      head, the rest from a random place on, the rest up to there
    corrupted   prefix ? suffix ? span      a hole, and behind it what was in the hole

A view is drawn anew at every meeting, so that a fact of the text is asked for from ever different
sides: what was only ever read in one order can only be told in that order. Turned, every place of
the text follows its head (the name that it is about) now and then.

A document that does not fit is seen through a window: any stretch of it, or its head and a stretch
of the rest.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from harken.batch.corruption import CorruptionConfig, corrupt_spans, cut_windows
from harken.batch.ragged import Numbers, Ragged, join, places
from harken.config import bounded

GROWTH = 2  # masks that a view may add to its document


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewsConfig:
    """Shares of the documents that are shown otherwise than whole."""

    corrupted: float = bounded(0.5, at_least=0.0, at_most=1.0)
    turned: float = bounded(0.0, at_least=0.0, at_most=1.0)
    hole: CorruptionConfig = field(default_factory=CorruptionConfig)

    def __post_init__(self) -> None:
        if self.corrupted + self.turned > 1:
            raise ValueError(
                f"corrupted {self.corrupted} and turned {self.turned} are more than all texts"
            )


class Documents(NamedTuple):
    """Texts, and how many tokens at the front of each are its head."""

    texts: Ragged
    heads: Numbers

    def take(self, chosen: Numbers) -> "Documents":
        return Documents(self.texts.take(chosen), self.heads[chosen])


def draw_views(
    documents: Documents, config: ViewsConfig, most: int, mask: int, random: np.random.Generator
) -> Ragged:
    """One view of each document, of at most `most` tokens and the masks; in another order."""
    drawn = random.random(len(documents.heads))
    ends = (config.corrupted, config.corrupted + config.turned)
    kinds = np.searchsorted(ends, drawn, side="right")
    corrupted, turned, whole = (documents.take(np.flatnonzero(kinds == n)) for n in range(3))
    holed = cut_windows(corrupted.texts, most, random)
    return join(
        [
            cut_windows(whole.texts, most, random),
            turn(turned, most, random),
            corrupt_spans(holed, config.hole, mask, random),
        ]
    )


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
