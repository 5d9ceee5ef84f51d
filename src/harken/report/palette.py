"""Colors of attention weights: one scale for light backgrounds, one for dark ones.

    level = round(sqrt(weight) * (LEVELS - 1))

The square root makes small weights visible: uniform attention over 25 keys is 0.04 per key. The
lightness of both scales is monotonic, so they are also readable in gray and by color-blind readers.
"""

import base64
import math
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

Weights = NDArray[np.floating]
LEVELS = 64
LIGHT = ("#f3f5f4", "#c3dfdf", "#6db1c6", "#2b70a8", "#122c5c")
DARK = ("#1e232b", "#22436c", "#2b7f99", "#7cc39b", "#f6f0b4")
DARK_SCREEN = "screen and (prefers-color-scheme: dark)"  # not in print
LEGEND = np.square(np.linspace(0, 1, 128))[None]  # weights at equal steps of the color scale
_PICTURE = Markup(
    '<picture><source media="{}" srcset="{}"><img src="{}" width="{}" height="{}" alt="{}">'
    "</picture>"
)


def color_scale(anchors: Sequence[str]) -> NDArray[np.uint8]:
    """Return LEVELS colors [LEVELS, 3], interpolated between equally spaced anchors."""
    channels = zip(*(bytes.fromhex(anchor[1:]) for anchor in anchors), strict=True)
    levels, known = np.linspace(0, len(anchors) - 1, LEVELS), np.arange(len(anchors))
    colors = [np.interp(levels, known, channel) for channel in channels]
    return np.asarray(np.rint(np.stack(colors, axis=-1)), dtype=np.uint8)


def color_position(weights: Weights) -> NDArray[np.float64]:
    """Return the position of weights on the color scale, 0 to 1."""
    return np.sqrt(np.clip(weights.astype(np.float64), 0.0, 1.0))


def color_levels(weights: Weights) -> NDArray[np.uint8]:
    """Return the index of each weight's color."""
    return np.rint(color_position(weights) * (LEVELS - 1)).astype(np.uint8)


def data_uri(image: Image.Image) -> str:
    """Return an image as a data URI in PNG format."""
    file = BytesIO()
    image.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def heatmap(weights: Weights, alt: str) -> Markup:
    """Return weights [rows, columns] as a `picture` element for light and dark themes."""
    uris = []
    for anchors in (DARK, LIGHT):
        image = Image.fromarray(color_levels(weights))
        image.putpalette(color_scale(anchors).tobytes())
        uris.append(data_uri(image))
    return _PICTURE.format(DARK_SCREEN, *uris, *weights.shape[::-1], alt)


def block_size(count: int, limit: int) -> int:
    """Return the smallest block size with which `count` items form at most `limit` blocks."""
    return math.ceil(count / limit)


def max_pool(weights: Weights, limit: int) -> Weights:
    """Reduce [… rows columns] to at most `limit` rows and columns, by the maximum of each block.

    A mean would hide a single large weight.
    """
    for axis in (-2, -1):
        count = weights.shape[axis]
        if count > limit:
            starts = np.arange(0, count, block_size(count, limit))
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights
