"""Views of a text: what a model is shown of a document each time that it meets it.

    whole       the document, to be continued from its first token
    corrupted   prefix ? suffix ? span      a hole, and behind it what was in the hole

A view is drawn anew at every meeting, so that a fact of the text is asked for from ever different
sides; a fact that was only ever read in one order can only be told in that order.
"""

from dataclasses import dataclass, field

import numpy as np

from harken.batch.corruption import CorruptionConfig, corrupt_spans, cut_windows
from harken.batch.ragged import Ragged, join, take_slices
from harken.config import bounded

GROWTH = 2  # masks that a view may add to its document


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewsConfig:
    """Shares of the documents that are shown otherwise than whole."""

    corrupted: float = bounded(0.5, at_least=0.0, at_most=1.0)
    hole: CorruptionConfig = field(default_factory=CorruptionConfig)


def draw_views(
    documents: Ragged, config: ViewsConfig, most: int, mask: int, random: np.random.Generator
) -> Ragged:
    """One view of each document, of at most `most` tokens and the masks; in another order."""
    documents = cut_windows(documents, most, random)
    chosen = random.random(len(documents.lengths)) < config.corrupted
    whole, holed = take(documents, ~chosen), take(documents, chosen)
    return join([whole, corrupt_spans(holed, config.hole, mask, random)])


def take(documents: Ragged, chosen: np.ndarray) -> Ragged:
    """The documents at these places, or where this is true."""
    return take_slices(documents.values, documents.starts[chosen], documents.lengths[chosen])
