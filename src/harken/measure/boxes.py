"""Attention over an image against the boxes of the caption's words.

    attention_in_box        share of words whose strongest attention lies in their own box
    attention_mass_in_box   share of a word's attention that lies in its box, mean over words
    chance_in_box           share of grid points that lie in the box, mean over the same words

`chance_in_box` is what random attention reaches in the first and uniform attention in the second. A
grid point is in a box if its center is, borders included.

A word counts if the alignment pairs it with an equal word of the caption that has the boxes. The
attention of a word is the mean over its tokens: a single token may begin many words, or be certain
already. Several equal maxima count as one of them drawn at random.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer

from harken.formats.examples import Box
from harken.measure.edit_distance import EditOp, matched_words
from harken.measure.interval import LOGIT, Sample

NOTES = {
    "attention_in_box": "words whose strongest look falls into their own box, borders included, of "
    "words written as in the caption; compare with chance_in_box",
    "attention_mass_in_box": "attention that falls into a word's own box, mean over words written "
    "as in the caption; compare with chance_in_box",
    "chance_in_box": "places that lie in a word's own box, mean over the same words: what looking "
    "by lot would reach",
}


class GridCenters(NamedTuple):
    """Centers of all grid points, in pixels from the upper left corner of the image."""

    x: Float[np.ndarray, "places"]
    y: Float[np.ndarray, "places"]


def grid_centers(columns: int, rows: int, stride: float, offset: float) -> GridCenters:
    """Return centers row by row; grid point n is centered on pixel `offset + stride * n`."""
    place = np.arange(columns * rows)
    middle = offset + 0.5  # a pixel's center is half a pixel further from the corner
    return GridCenters(middle + stride * (place % columns), middle + stride * (place // columns))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageAttention:
    """Attention of each output token over one image."""

    weights: Float[np.ndarray, "symbols places"]
    words: Integer[np.ndarray, "symbols"]  # the index of each token's word; -1 for no word
    centers: GridCenters


class BoxHit(NamedTuple):
    """The metrics of one word."""

    attention_in_box: float
    attention_mass_in_box: float
    chance_in_box: float


def box_samples(
    boxes: Sequence[Sequence[Box]],
    attention: Sequence[ImageAttention],
    alignments: Sequence[Sequence[EditOp]],
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Return samples by metric over the words of all images, and a note on each.

    `boxes` are those of a caption's words, none if unknown; `alignments` are of outputs with it.
    """
    images = [list(box_hits(*image)) for image in zip(boxes, attention, alignments, strict=True)]
    return {name: mean_over_words(name, images) for name in BoxHit._fields}, NOTES


def mean_over_words(name: str, images: Sequence[Sequence[BoxHit]]) -> Sample:
    """Return the mean of a metric; the words that count depend on the system."""
    rows = [(sum(getattr(hit, name) for hit in hits), len(hits)) for hits in images]
    return Sample(counts=np.array(rows, dtype=np.float64), link=LOGIT, chosen=True)


def box_hits(
    boxes: Sequence[Box], attention: ImageAttention, steps: Sequence[EditOp]
) -> Iterator[BoxHit]:
    """Yield the metrics of each matched word of one image."""
    for word, written in matched_words(steps):
        own = attention.words == written
        if word < len(boxes) and own.any():
            within = inside(boxes[word], attention.centers)
            yield box_hit(attention.weights[own].mean(axis=0), within)


def box_hit(weights: Float[np.ndarray, "places"], within: Bool[np.ndarray, "places"]) -> BoxHit:
    """Return the metrics of one word; weights of zeros count as uniform."""
    weights = weights if weights.any() else np.ones_like(weights)
    return BoxHit(
        attention_in_box=float(within[weights == weights.max()].mean()),
        attention_mass_in_box=float(weights[within].sum() / weights.sum()),
        chance_in_box=float(within.mean()),
    )


def inside(box: Box, centers: GridCenters) -> Bool[np.ndarray, "places"]:
    """Return which grid points lie in a box, borders included."""
    across = (box.x <= centers.x) & (centers.x <= box.x + box.width)
    return across & (box.y <= centers.y) & (centers.y <= box.y + box.height)
