"""Span corruption: a text to read becomes a text with a hole and, behind it, what was in the hole.

    prefix  <mask>  suffix  <mask>  span

The model reads the left part and learns to write the span, from both of its sides; a question is
then only another text with a hole. Lengths are drawn anew each time a document is met.
"""

from dataclasses import dataclass

import numpy as np

from harken.batch.ragged import Numbers, Ragged, places, ragged_slices
from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class CorruptionConfig:
    """How large the hole is, as a share of the text: uniform between the two."""

    min_ratio: float = bounded(0.05, above=0.0, below=1.0)
    max_ratio: float = bounded(0.45, above=0.0, below=1.0)

    def __post_init__(self) -> None:
        if self.max_ratio < self.min_ratio:
            raise ValueError(f"longest {self.max_ratio} is below shortest {self.min_ratio}")


def cut_windows(documents: Ragged, most: int, random: np.random.Generator) -> Ragged:
    """A random stretch of `most` tokens of every document that is longer."""
    lengths = np.minimum(documents.lengths, most)
    spare = documents.lengths - lengths
    starts = documents.starts + random.integers(0, spare + 1)
    return ragged_slices(documents.values, starts, lengths)


def corrupt_spans(
    documents: Ragged, config: CorruptionConfig, mask: int, random: np.random.Generator
) -> Ragged:
    """Move one span of every document behind it; each grows by two masks."""
    lengths = documents.lengths
    shares = random.uniform(config.min_ratio, config.max_ratio, size=len(lengths))
    spans = np.clip(np.rint(shares * lengths).astype(np.int64), np.minimum(lengths, 1), lengths)
    holes = random.integers(0, lengths - spans + 1)
    return move_spans(documents, holes, spans, mask)


def move_spans(documents: Ragged, holes: Numbers, spans: Numbers, mask: int) -> Ragged:
    """The same for chosen holes: document[hole : hole + span] goes behind its document."""
    lengths = documents.lengths + 2
    owner, place = places(lengths)
    hole, span = holes[owner], spans[owner]
    second = documents.lengths[owner] - span + 1  # where the second mask stands
    source = np.where(place < hole, place, place - 1 + span)
    source = np.where(place > second, hole + place - second - 1, source)
    masked = (place == hole) | (place == second)
    source = np.where(masked, 0, source) + documents.starts[owner]
    # An empty document at the very end would read one past the array.
    padded = np.append(documents.values, mask)
    return Ragged(np.where(masked, mask, padded[source]), lengths)
