"""Shapes in colours, drawn by signed distances.

    covered(pixel) = clip(1/2 - d(centre of the pixel), 0, 1),   d < 0 inside, in pixels
    pixel <- (1 - covered) * pixel + covered * colour

A distance is exact beside an edge, which is where it matters; beyond a corner the two edges are
prolonged, so that corners stay sharp. Which things there are, and where, is in made.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, UInt8

from harken.formats.examples import Box

Plane = Float[np.ndarray, "Y X"]
Picture = UInt8[np.ndarray, "Y X 3"]

# No two are alike in grey (20, 50, 86, 120, 157, 201): whoever sees no colours can tell them apart.
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "black": (20, 20, 20),
    "blue": (20, 40, 180),
    "red": (215, 30, 35),
    "green": (40, 170, 70),
    "orange": (250, 138, 10),
    "yellow": (245, 210, 40),
}


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape in a colour; it reaches `radius` pixels to each side of its middle at most."""

    colour: str
    shape: str
    x: float  # pixels from the left edge of the picture
    y: float  # pixels from its upper edge
    radius: float


def paint(picture: Picture, thing: Thing) -> Box:
    """Draw a thing into a picture; the box of the pixels that it changed."""
    rows, columns = (_window(middle, thing.radius) for middle in (thing.y, thing.x))
    under = picture[rows, columns]
    covered = coverage(thing, rows.start, columns.start, *under.shape[:2])[..., None]
    mixed = np.rint((1 - covered) * under + covered * COLOURS[thing.colour]).astype(np.uint8)
    changed = (mixed != under).any(axis=2)
    picture[rows, columns] = mixed
    across, down = (np.flatnonzero(changed.any(axis=axis)) for axis in (0, 1))
    return Box(
        x=columns.start + int(across[0]),
        y=rows.start + int(down[0]),
        width=int(across[-1] - across[0] + 1),
        height=int(down[-1] - down[0] + 1),
    )


def coverage(thing: Thing, top: int, left: int, rows: int, columns: int) -> Plane:
    """How much of each pixel a thing covers, for the part of a picture that begins at (left, top).

    The middle of the upper left pixel of a picture is at (0.5, 0.5).
    """
    y, x = np.mgrid[top : top + rows, left : left + columns] + 0.5
    distance = SHAPES[thing.shape]((x - thing.x) / thing.radius, (y - thing.y) / thing.radius)
    return np.clip(0.5 - thing.radius * distance, 0.0, 1.0)


def _window(middle: float, radius: float) -> slice:
    """The pixels that a thing may touch: those near its edge, and some for sharp corners."""
    return slice(max(int(middle - radius - 1.5), 0), int(middle + radius + 2.5))


# --- distances in radii; y grows downwards


def _pointed(x: Plane, y: Plane, *, points: int, tip: float, waist: float, lower: float) -> Plane:
    """So many tips around a middle that is `lower`; between two, a corner `waist` from the middle.

    Folded along its axes of symmetry, the outline is one straight line from a tip to a corner.
    """
    half = np.pi / points
    y = y - lower
    angle = np.abs((np.arctan2(x, -y) + half) % (2 * half) - half)  # from the nearest tip
    along, across = np.hypot(x, y) * np.cos(angle), np.hypot(x, y) * np.sin(angle)
    outwards = np.array([waist * np.sin(half), tip - waist * np.cos(half)])
    outwards /= np.hypot(*outwards)
    distance: Plane = (along - tip) * outwards[0] + across * outwards[1]
    return distance


SHAPES: Mapping[str, Callable[[Plane, Plane], Plane]] = {
    "circle": lambda x, y: np.hypot(x, y) - 0.92,
    "cross": lambda x, y: np.maximum(
        np.minimum(abs(x), abs(y)) - 0.3, np.maximum(abs(x), abs(y)) - 0.97
    ),
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.76) - 0.2,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) - 0.82,
    # The width of both is twice the radius.
    "star": partial(_pointed, points=5, tip=1.05, waist=0.5, lower=0.1),
    "triangle": partial(_pointed, points=3, tip=1.15, waist=0.575, lower=0.29),
}
