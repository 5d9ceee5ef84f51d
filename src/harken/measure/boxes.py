"""Where a picture was looked at while its words were written, against where they stand in it.

    attention_in_box        share of words whose strongest look lies in their own box
    attention_mass_in_box   share of a word's attention that lies in its box, mean over words
    chance_in_box           share of all places that lie in the box, mean over the same words

The last is what the first would be if places were drawn by lot, and the second if all were looked
at alike. A place is in a box when its centre is, or lies on the border; a box between the centers
holds no place and cannot be found.

A word counts where the alignment sets it beside its equal in the caption that has the boxes: the
others have no box to be looked for in. Where a word is written in several symbols, its attention is
the mean of theirs, for both figures: a symbol alone may be one that many words begin with, or one
that is sure already. Of several places looked at most strongly, one counts as drawn by lot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer

from harken.formats.examples import Box
from harken.measure.edit_distance import EditOp
from harken.measure.interval import LOGIT, Sample
from harken.measure.word_times import matched_words

NOTES = {
    "attention_in_box": "words whose strongest look falls into their own box, borders included, of "
    "words written as in the caption; compare with chance_in_box",
    "attention_mass_in_box": "attention that falls into a word's own box, mean over words written "
    "as in the caption; compare with chance_in_box",
    "chance_in_box": "places that lie in a word's own box, mean over the same words: what looking "
    "by lot would reach",
}


class GridCenters(NamedTuple):
    """Of every place, in pixels from the upper left corner of the picture, as boxes are."""

    x: Float[np.ndarray, "places"]
    y: Float[np.ndarray, "places"]


def grid_centers(columns: int, rows: int, stride: float, offset: float) -> GridCenters:
    """Of places row by row, whose middle pixels are `offset + stride * place` along each axis."""
    place = np.arange(columns * rows)
    # The middle of a pixel is half a pixel further from the corner than its number.
    middle = offset + 0.5
    return GridCenters(middle + stride * (place % columns), middle + stride * (place // columns))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageAttention:
    """What was looked at in one picture, for each symbol that was written."""

    weights: Float[np.ndarray, "symbols places"]
    words: Integer[np.ndarray, "symbols"]  # the number of each one's written word; -1 for no word
    centers: GridCenters


class BoxHit(NamedTuple):
    """What every metric counts of one word."""

    attention_in_box: float
    attention_mass_in_box: float
    chance_in_box: float


def box_samples(
    boxes: Sequence[Sequence[Box]],
    looks: Sequence[ImageAttention],
    alignments: Sequence[Sequence[EditOp]],
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Samples by metric, over all words together, and what a reader must know of each.

    `boxes` are those of a caption's words, none where they are not known; `alignments` set what was
    written beside that caption.
    """
    pictures = [list(hits(*one)) for one in zip(boxes, looks, alignments, strict=True)]
    return {name: mean_of(name, pictures) for name in BoxHit._fields}, NOTES


def mean_of(name: str, pictures: Sequence[Sequence[BoxHit]]) -> Sample:
    """Over all words together; which of them count is the system's own choice."""
    rows = [(sum(getattr(one, name) for one in words), len(words)) for words in pictures]
    return Sample(counts=np.array(rows, dtype=np.float64), link=LOGIT, chosen=True)


def hits(boxes: Sequence[Box], looks: ImageAttention, steps: Sequence[EditOp]) -> Iterator[BoxHit]:
    """Of each word of one picture that was written as in the caption."""
    for word, written in matched_words(steps):
        own = looks.words == written
        if word < len(boxes) and own.any():
            yield hit(looks.weights[own].mean(axis=0), inside(boxes[word], looks.centers))


def hit(weights: Float[np.ndarray, "places"], within: Bool[np.ndarray, "places"]) -> BoxHit:
    """Of one word; who looks nowhere looks everywhere alike."""
    weights = weights if weights.any() else np.ones_like(weights)
    strongest = weights == weights.max()
    return BoxHit(
        attention_in_box=float(within[strongest].mean()),
        attention_mass_in_box=float(weights[within].sum() / weights.sum()),
        chance_in_box=float(within.mean()),
    )


def inside(box: Box, centers: GridCenters) -> Bool[np.ndarray, "places"]:
    """Which places lie in a box, borders included."""
    right, below = box.x + box.width, box.y + box.height
    across = (box.x <= centers.x) & (centers.x <= right)
    return across & (box.y <= centers.y) & (centers.y <= below)
