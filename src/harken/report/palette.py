"""Weights as colours: one scale for light paper, one for dark.

    level = round(sqrt(w) * (LEVELS - 1))

The square root, because attention spread evenly over 25 keys is 0.04 each, which a linear scale
shows as nothing. Lightness falls (light paper) or rises (dark paper) all the way, so the order
survives every kind of colour blindness and a grey printer.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harken.report.markup import attribute
from harken.report.png import data_uri, png

LEVELS = 64
LIGHT = ("#f3f5f4", "#c3dfdf", "#6db1c6", "#2b70a8", "#122c5c")
DARK = ("#1e232b", "#22436c", "#2b7f99", "#7cc39b", "#f6f0b4")
# Printers get the light scale whatever the screen prefers.
DARK_SCREEN = "screen and (prefers-color-scheme: dark)"


def scale(anchors: Sequence[str]) -> NDArray[np.uint8]:
    """LEVELS colours, [LEVELS, 3], straight lines between equally spaced anchors."""
    known = np.array([list(bytes.fromhex(anchor[1:])) for anchor in anchors], dtype=np.float64)
    at = np.linspace(0, len(anchors) - 1, LEVELS)
    channels = [np.interp(at, np.arange(len(anchors)), known[:, c]) for c in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def strength(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Where on the scale a weight sits, 0..1."""
    return np.sqrt(np.clip(weights.astype(np.float64), 0.0, 1.0))


def levels(weights: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Which colour of a scale each weight has."""
    return np.rint(strength(weights) * (LEVELS - 1)).astype(np.uint8)


def images(weights: NDArray[np.floating]) -> tuple[str, str]:
    """A map [rows, columns] as addresses of two images: for light paper and for dark."""
    found = levels(weights)
    light, dark = (data_uri(png(found, scale(anchors))) for anchors in (LIGHT, DARK))
    return light, dark


def picture(weights: NDArray[np.floating], *, alt: str) -> str:
    """A map [rows, columns] of weights as a `picture` that follows the reader's theme."""
    light, dark = images(weights)
    height, width = weights.shape
    return (
        f'<picture><source media="{DARK_SCREEN}" srcset="{dark}">'
        f'<img src="{light}" width="{width}" height="{height}" alt={attribute(alt)}></picture>'
    )


def block(count: int, most: int) -> int:
    """How many neighbours share a place where `count` of them have `most` places."""
    return math.ceil(count / most)


def peaks(weights: NDArray[np.floating], most: int) -> NDArray[np.floating]:
    """Maps [… rows columns] of at most `most` rows and columns: the largest weight of each block.

    A mean would hide the one sharp weight that a reader looks for.
    """
    for axis in (-2, -1):
        count = weights.shape[axis]
        if count > most:
            starts = np.arange(0, count, block(count, most))
            weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights
