"""Weights as colours: one scale for light paper, one for dark.

    level = round(sqrt(w) * (LEVELS - 1))

The square root, because attention spread evenly over 25 keys is 0.04 each, which a linear scale
shows as nothing. Lightness falls (light paper) or rises (dark paper) all the way, so the order
survives every kind of colour blindness and a grey printer.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harken.report.markup import attribute
from harken.report.png import data_uri, png

LEVELS = 64
LIGHT = ("#f3f5f4", "#c3dfdf", "#6db1c6", "#2b70a8", "#122c5c")
DARK = ("#1e232b", "#22436c", "#2b7f99", "#7cc39b", "#f6f0b4")
# Printers get the light scale whatever the screen prefers.
_DARK_SCREEN = "screen and (prefers-color-scheme: dark)"


def scale(anchors: Sequence[str]) -> NDArray[np.uint8]:
    """LEVELS colours, [LEVELS, 3], straight lines between equally spaced anchors."""
    known = np.array([list(bytes.fromhex(anchor[1:])) for anchor in anchors], dtype=np.float64)
    at = np.linspace(0, len(anchors) - 1, LEVELS)
    channels = [np.interp(at, np.arange(len(anchors)), known[:, c]) for c in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def strength(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Where on the scale a weight sits, 0..1."""
    return np.sqrt(np.clip(weights.astype(np.float64), 0.0, 1.0))


def picture(weights: NDArray[np.floating], *, alt: str) -> str:
    """A map [rows, columns] of weights as a `picture` that follows the reader's theme."""
    levels = np.rint(strength(weights) * (LEVELS - 1)).astype(np.uint8)
    light, dark = (data_uri(png(levels, scale(anchors))) for anchors in (LIGHT, DARK))
    height, width = weights.shape
    return (
        f'<picture><source media="{_DARK_SCREEN}" srcset="{dark}">'
        f'<img src="{light}" width="{width}" height="{height}" alt={attribute(alt)}></picture>'
    )
