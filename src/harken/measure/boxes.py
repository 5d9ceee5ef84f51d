"""Attention over an image compared with the boxes of the caption's words.

    attention_in_box        share of words whose strongest attention lies in their box
    attention_mass_in_box   share of a word's attention that lies in its box, mean over words
    chance_in_box           share of grid points in the box, mean over the same words: the
                            expected value of the other two for random or uniform attention

A grid point is in a box if its center is, borders included. Words are those of the output that an
alignment of output and caption (`edit_distance.py`) pairs with an equal word of the caption. The
attention of a word is the mean over its tokens. If several points have the maximum, the share of
them in the box counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer

from harken.formats.examples import Box
from harken.measure.edit_distance import EditOp, matched_words
from harken.measure.interval import LOGIT, Sample

NOTES = {
    "attention_in_box": "share of correct words whose strongest attention lies in their box; "
    "compare with chance_in_box",
    "attention_mass_in_box": "share of a word's attention in its box, mean over correct words; "
    "compare with chance_in_box",
    "chance_in_box": "share of grid points in the box, mean over the same words: random attention",
}


class GridCenters(NamedTuple):
    """Centers of all grid points, in pixels from the upper left corner of the image."""

    x: Float[np.ndarray, "points"]
    y: Float[np.ndarray, "points"]


def grid_centers(columns: int, rows: int, stride: float, offset: float) -> GridCenters:
    """Return centers row by row; column n, or row n, is centered on pixel `offset + stride * n`."""
    row, column = np.divmod(np.arange(columns * rows), columns)
    first = offset + 0.5  # a pixel's center is half a pixel further from the corner
    return GridCenters(first + stride * column, first + stride * row)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageAttention:
    """Attention of each output token over one image."""

    weights: Float[np.ndarray, "tokens points"]
    words: Integer[np.ndarray, "tokens"]  # the index of each token's word, or -1
    centers: GridCenters


class BoxMetrics(NamedTuple):
    """The metrics of one word."""

    attention_in_box: float
    attention_mass_in_box: float
    chance_in_box: float


def box_samples(
    boxes: Sequence[Sequence[Box]],
    attention: Sequence[ImageAttention],
    alignments: Sequence[Sequence[EditOp]],
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Return samples and notes by metric; `boxes` has the boxes of each caption's words."""
    rows = []  # of each caption: sums of the three metrics, and number of words
    for word_boxes, image, ops in zip(boxes, attention, alignments, strict=True):
        metrics = []
        for caption_word, output_word in matched_words(ops):
            tokens = image.words == output_word
            if caption_word < len(word_boxes) and tokens.any():
                weights = image.weights[tokens].mean(axis=0)
                within = points_in_box(word_boxes[caption_word], image.centers)
                metrics.append(box_metrics(weights, within))
        rows.append([*(sum(word[column] for word in metrics) for column in range(3)), len(metrics)])
    *columns, counted = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    samples = {
        name: Sample(counts=np.stack((sums, counted), axis=1), link=LOGIT, selective=True)
        for name, sums in zip(BoxMetrics._fields, columns, strict=True)
    }
    return samples, NOTES


def box_metrics(
    weights: Float[np.ndarray, "points"], within: Bool[np.ndarray, "points"]
) -> BoxMetrics:
    """Return the metrics of one word; weights of zeros count as uniform."""
    weights = weights if weights.any() else np.ones_like(weights)
    return BoxMetrics(
        attention_in_box=float(within[weights == weights.max()].mean()),
        attention_mass_in_box=float(weights[within].sum() / weights.sum()),
        chance_in_box=float(within.mean()),
    )


def points_in_box(box: Box, centers: GridCenters) -> Bool[np.ndarray, "points"]:
    """Return which grid points lie in a box, borders included."""
    across = (box.x <= centers.x) & (centers.x <= box.x + box.width)
    return across & (box.y <= centers.y) & (centers.y <= box.y + box.height)
