"""Generate scenes of colored shapes with captions.

    a red circle, and to the right of it a blue square   ->   "red circle blue square"

A scene has one to four shapes that do not touch. Its caption names them from left to right, two
words each: color and shape. The box of each word is that of its shape.

With `new_pairs`, some pairs of color and shape are kept for test: train and dev have none of them,
test has nothing else. Every color and every shape is seen in training, only never together, so the
difference between test and dev measures memorization of pairs.

Everything is a pure function of the seed, the part and an index. On the disk:

    FOLDER/train.jsonl       {"index": 0, "caption": "red ring", "boxes_xywh": [[4, 9, 14, 14], …]}
    FOLDER/train.npz         images: uint8 [N, Y, X, 3]; the same for dev and test
    FOLDER/examples/0.png …  the first scenes of test

Shapes are drawn by signed distances:

    covered(pixel) = clip(1/2 - d(center of the pixel), 0, 1),   d < 0 inside, in pixels
    pixel <- (1 - covered) * pixel + covered * color

A distance is exact beside an edge, where it matters; beyond a corner the two edges are prolonged,
so that corners stay sharp.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from harken.files import replacing, replacing_folder
from harken.formats.examples import Box, CaptionedImage
from harken.formats.split import PARTS, Part, part_sizes
from harken.synthetic.draws import require_bounds, require_generated, require_range, rng

Plane = Float[np.ndarray, "Y X"]
Picture = UInt8[np.ndarray, "Y X 3"]

# No two are alike in gray (20, 50, 86, 120, 157, 201): whoever sees no colors can tell them apart.
COLORS: Mapping[str, tuple[int, int, int]] = {
    "black": (20, 20, 20),
    "blue": (20, 40, 180),
    "red": (215, 30, 35),
    "green": (40, 170, 70),
    "orange": (250, 138, 10),
    "yellow": (245, 210, 40),
}


def _pointed(x: Plane, y: Plane, *, points: int, tip: float, waist: float, lower: float) -> Plane:
    """Return the distance to a star: `points` tips around a center, and corners between them.

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

MAX_SCENES = 100_000
MAX_SHAPES = 4  # more would seldom find room
SIZES = (32, 512)
EXAMPLES = 8

PAIRS = tuple(product(COLORS, SHAPES))
assert len(COLORS) == len(SHAPES)  # so that a pair can be kept from each

_PAPER = (232, 248)  # the gray background
_MARGIN = 1.25  # pixels around a shape: the soft edge of the sharpest corner ends within
# In sizes of a picture. Shapes stand further apart than their half widths differ, so that their
# left edges, their middles and their right edges come in the same order.
_RADII = (0.11, 0.17)
_STEP = 0.1
_LAYOUTS = 128  # tried together: of three shapes one layout in 25 is clear, of four in 800
_GENERATED = re.compile(r"\d+\.png")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnConfig:
    """How many scenes, a tenth each for dev and test, and what is in them."""

    scenes: int = 2000
    size: int = 48  # pixels, both ways
    least: int = 1  # shapes per scene
    most: int = 3
    noise: float = 3.0  # standard deviation, of the 255 steps of each channel
    new_pairs: bool = False  # train and dev lack the pairs that test consists of
    seed: int = 0

    def __post_init__(self) -> None:
        require_range("scenes", self.scenes, 3, MAX_SCENES)
        require_range("size", self.size, *SIZES)
        require_bounds(self.least, self.most, MAX_SHAPES)
        require_range("noise", self.noise, 0, 64)


@dataclass(frozen=True, slots=True)
class ColoredShape:
    """A shape in a color; it reaches `radius` pixels to each side of its middle at most."""

    color: str
    shape: str
    x: float  # pixels from the left edge of the picture
    y: float  # pixels from its upper edge
    radius: float


class Drawn(NamedTuple):
    """A picture, its caption, and its shapes from left to right."""

    captioned: CaptionedImage
    picture: Picture
    things: tuple[ColoredShape, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnFiles:
    """The files that `write_drawn` has written."""

    captions: dict[Part, Path]
    images: dict[Part, Path]
    examples: Path


def kept_pairs(seed: int) -> set[tuple[str, str]]:
    """Return the pairs that `new_pairs` keeps for test: one of each color and of each shape."""
    shapes = rng("drawn pairs", seed).permutation(list(SHAPES)).tolist()
    return set(zip(COLORS, shapes, strict=True))


def pairs_of(config: DrawnConfig, part: Part) -> list[tuple[str, str]]:
    """Return the pairs of color and shape of a part."""
    if not config.new_pairs:
        return list(PAIRS)
    kept = kept_pairs(config.seed)
    return [pair for pair in PAIRS if (pair in kept) == (part == "test")]


def drawn(config: DrawnConfig, part: Part, index: int) -> Drawn:
    """Draw one scene; its boxes are those of the picture without noise."""
    random = rng("drawn", config.seed, part, index)
    things = _things(config, pairs_of(config, part), random)
    picture = np.full((config.size, config.size, 3), random.integers(*_PAPER), dtype=np.uint8)
    boxes = [paint(picture, thing) for thing in things]
    noise = random.normal(0.0, config.noise, picture.shape)
    captioned = CaptionedImage(
        image=index,
        captions=(" ".join(f"{thing.color} {thing.shape}" for thing in things),),
        boxes=tuple(box for box in boxes for _ in ("color", "shape")),
    )
    noisy = np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8)
    return Drawn(captioned, noisy, things)


def _things(
    config: DrawnConfig, pairs: list[tuple[str, str]], random: np.random.Generator
) -> tuple[ColoredShape, ...]:
    """Draw pairs once, and layouts until shapes are apart: every such layout is as likely."""
    count = int(random.integers(config.least, config.most, endpoint=True))
    chosen = [pairs[number] for number in random.integers(len(pairs), size=count)]
    first, second = np.triu_indices(count, 1)
    while True:
        radii = config.size * random.uniform(*_RADII, size=(_LAYOUTS, count))
        reach = radii + _MARGIN
        x, y = random.uniform(reach, config.size - reach, size=(2, *reach.shape))
        across, down = (np.abs(middle[:, first] - middle[:, second]) for middle in (x, y))
        apart = np.maximum(across, down) >= reach[:, first] + reach[:, second]
        clear = np.flatnonzero((apart & (across >= _STEP * config.size)).all(axis=1))
        if clear.size:
            layout = sorted(np.stack([x, y, radii], axis=2)[clear[0]].tolist())
            return tuple(
                ColoredShape(*pair, *place) for pair, place in zip(chosen, layout, strict=True)
            )


def paint(picture: Picture, thing: ColoredShape) -> Box:
    """Draw a shape into a picture, and return the box of the pixels that changed."""
    rows, columns = (_window(middle, thing.radius) for middle in (thing.y, thing.x))
    under = picture[rows, columns]
    covered = coverage(thing, rows.start, columns.start, *under.shape[:2])[..., None]
    mixed = np.rint((1 - covered) * under + covered * COLORS[thing.color]).astype(np.uint8)
    changed = (mixed != under).any(axis=2)
    picture[rows, columns] = mixed
    across, down = (np.flatnonzero(changed.any(axis=axis)) for axis in (0, 1))
    return Box(
        x=columns.start + int(across[0]),
        y=rows.start + int(down[0]),
        width=int(across[-1] - across[0] + 1),
        height=int(down[-1] - down[0] + 1),
    )


def coverage(thing: ColoredShape, top: int, left: int, rows: int, columns: int) -> Plane:
    """Return how much of each pixel a shape covers, in the window that begins at (left, top).

    The center of the upper left pixel of a picture is at (0.5, 0.5).
    """
    y, x = np.mgrid[top : top + rows, left : left + columns] + 0.5
    distance = SHAPES[thing.shape]((x - thing.x) / thing.radius, (y - thing.y) / thing.radius)
    return np.clip(0.5 - thing.radius * distance, 0.0, 1.0)


def _window(middle: float, radius: float) -> slice:
    """Return the pixels that a shape may touch: those near its edge, and some for sharp corners."""
    return slice(max(int(middle - radius - 1.5), 0), int(middle + radius + 2.5))


# --- files


def write_drawn(config: DrawnConfig, folder: Path) -> DrawnFiles:
    """Write every part, one scene at a time; files get their names when all are complete."""
    files = DrawnFiles(
        captions={part: folder / f"{part}.jsonl" for part in PARTS},
        images={part: folder / f"{part}.npz" for part in PARTS},
        examples=folder / "examples",
    )
    require_generated(files.examples, _GENERATED)
    sizes = part_sizes(config.scenes)
    with ExitStack() as unfinished:
        examples = unfinished.enter_context(replacing_folder(files.examples))
        for part, count in sizes.items():
            captions = unfinished.enter_context(replacing(files.captions[part]))
            images = unfinished.enter_context(replacing(files.images[part]))
            _write_part(config, part, count, captions, images)
        for index in range(min(EXAMPLES, sizes["test"])):
            picture = drawn(config, "test", index).picture
            Image.fromarray(picture).save(examples / f"{index}.png")
    return files


def _write_part(config: DrawnConfig, part: Part, count: int, captions: Path, images: Path) -> None:
    """Write what `numpy.savez_compressed` would write, without all pictures in memory."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, config.size, config.size, 3)}
    with (
        captions.open("w", encoding="utf-8", newline="\n") as lines,
        ZipFile(images, "w", ZIP_DEFLATED) as archive,
        archive.open("images.npy", "w", force_zip64=True) as array,
    ):
        np.lib.format.write_array_header_1_0(array, header)
        for index in range(count):
            captioned, picture, _ = drawn(config, part, index)
            lines.write(_json(captioned) + "\n")
            array.write(picture.tobytes())


def _json(example: CaptionedImage) -> str:
    boxes = [[box.x, box.y, box.width, box.height] for box in example.boxes]
    return json.dumps({"index": example.image, "caption": example.captions[0], "boxes_xywh": boxes})
