"""Generate images of colored shapes with captions.

    a red circle, and to the right of it a blue square   ->   "red circle blue square"

A scene has one to four separate shapes. Its caption names color and shape of each from left to
right; the box of each word is that of its shape. Everything is a function of the config, the split
and an index.

    FOLDER/train.jsonl       {"index": 0, "caption": "red ring", "boxes_xywh": [[4, 9, 14, 14], …]}
    FOLDER/train.npz         images: uint8 [N, Y, X, 3]; the same for dev and test
    FOLDER/examples/0.png …  the first scenes of test

Shapes are drawn by signed distances d, which are negative inside and exact near edges:

    pixel <- (1 - covered) * pixel + covered * color,   covered = clip(1/2 - d, 0, 1)
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
from harken.formats.split import Split, split_sizes
from harken.synthetic.draws import keyed_rng, require_bounds, require_only_generated, require_ranges

Plane = Float[np.ndarray, "Y X"]
Picture = UInt8[np.ndarray, "Y X 3"]

# Their gray values differ too: 20, 50, 86, 120, 157, 201.
COLORS: Mapping[str, tuple[int, int, int]] = {
    "black": (20, 20, 20),
    "blue": (20, 40, 180),
    "red": (215, 30, 35),
    "green": (40, 170, 70),
    "orange": (250, 138, 10),
    "yellow": (245, 210, 40),
}


def _star(x: Plane, y: Plane, *, points: int, tip: float, waist: float, center_y: float) -> Plane:
    """Return the signed distance to a star with `points` tips, one of which is at the top.

    tip, waist: distances of the tips and of the corners between them from the center of the star
    center_y: y of this center

    Each pixel is mirrored into the sector between a tip and the next corner, in which the edge is
    one straight line.
    """
    half = np.pi / points
    y = y - center_y
    angle = np.abs((np.arctan2(x, -y) + half) % (2 * half) - half)  # from the nearest tip
    along, across = np.hypot(x, y) * np.cos(angle), np.hypot(x, y) * np.sin(angle)
    normal = np.array([waist * np.sin(half), tip - waist * np.cos(half)])  # of this line
    normal /= np.hypot(*normal)
    distance: Plane = (along - tip) * normal[0] + across * normal[1]
    return distance


# Signed distances as functions of x and y, all in units of the radius.
SHAPES: Mapping[str, Callable[[Plane, Plane], Plane]] = {
    "circle": lambda x, y: np.hypot(x, y) - 0.92,
    "cross": lambda x, y: np.maximum(
        np.minimum(abs(x), abs(y)) - 0.3, np.maximum(abs(x), abs(y)) - 0.97
    ),
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.76) - 0.2,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) - 0.82,
    # Stars and triangles are two radii wide.
    "star": partial(_star, points=5, tip=1.05, waist=0.5, center_y=0.1),
    "triangle": partial(_star, points=3, tip=1.15, waist=0.575, center_y=0.29),
}

MAX_SCENES = 100_000
MAX_SHAPES = 4
SIZES = (32, 512)
EXAMPLES = 8

PAIRS = tuple(product(COLORS, SHAPES))
assert len(COLORS) == len(SHAPES)  # so that one pair per color and per shape can be held out

_BACKGROUND = (232, 248)  # range of gray values
_MARGIN = 1.25  # pixels around a shape, which contain its antialiased edge
# Radius and minimum horizontal distance, as fractions of the image size. The distance exceeds
# differences of radii, so that left edges, centers and right edges have the same order.
_RADII = (0.11, 0.17)
_MIN_DISTANCE = 0.1
_LAYOUTS = 128  # drawn together: one in 25 is valid for three shapes, one in 800 for four
_GENERATED = re.compile(r"\d+\.png")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenesConfig:
    """Number of scenes, a tenth each for dev and test, and their contents."""

    scenes: int = 2000
    size: int = 48  # pixels, width and height
    min_shapes: int = 1  # shapes per scene
    max_shapes: int = 3
    noise: float = 3.0  # standard deviation; pixels are 0 to 255
    # Test has only pairs of color and shape that are not in train and dev: the difference between
    # test and dev measures memorization of pairs.
    new_pairs: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_ranges(self, scenes=(3, MAX_SCENES), size=SIZES, noise=(0, 64))
        require_bounds(self, "shapes", MAX_SHAPES)


@dataclass(frozen=True, slots=True)
class ColoredShape:
    """A shape with a color, and its center and radius in pixels."""

    color: str
    shape: str
    x: float
    y: float
    radius: float


class DrawnScene(NamedTuple):
    """An image, its caption, and its shapes from left to right."""

    captioned: CaptionedImage
    picture: Picture
    shapes: tuple[ColoredShape, ...]


def held_out_pairs(seed: int) -> set[tuple[str, str]]:
    """Return the pairs that `new_pairs` reserves for test: one per color and per shape."""
    shapes = keyed_rng("drawn pairs", seed).permutation(list(SHAPES)).tolist()
    return set(zip(COLORS, shapes, strict=True))


def draw_scene(config: ScenesConfig, split: Split, index: int) -> DrawnScene:
    """Draw one scene; its boxes are those of the image without noise."""
    rng = keyed_rng("drawn", config.seed, split, index)
    shapes = _draw_shapes(config, split, rng)
    picture = np.full((config.size, config.size, 3), rng.integers(*_BACKGROUND), dtype=np.uint8)
    boxes = [paint(picture, shape) for shape in shapes]
    noise = rng.normal(0.0, config.noise, picture.shape)
    caption = " ".join(f"{shape.color} {shape.shape}" for shape in shapes)
    word_boxes = tuple(box for box in boxes for _ in ("color", "shape"))
    noisy = np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8)
    return DrawnScene(CaptionedImage(index, (caption,), word_boxes), noisy, shapes)


def _draw_shapes(
    config: ScenesConfig, split: Split, rng: np.random.Generator
) -> tuple[ColoredShape, ...]:
    """Draw colors and shapes once, and layouts until no shapes overlap."""
    pairs = PAIRS
    if config.new_pairs:
        held_out = held_out_pairs(config.seed)
        pairs = tuple(pair for pair in PAIRS if (pair in held_out) == (split == "test"))
    count = int(rng.integers(config.min_shapes, config.max_shapes, endpoint=True))
    chosen = [pairs[number] for number in rng.integers(len(pairs), size=count)]
    first, second = np.triu_indices(count, 1)  # every two shapes of the scene
    while True:
        radii = config.size * rng.uniform(*_RADII, size=(_LAYOUTS, count))
        reach = radii + _MARGIN
        x, y = rng.uniform(reach, config.size - reach, size=(2, *reach.shape))
        across, down = (np.abs(center[:, first] - center[:, second]) for center in (x, y))
        is_separate = np.maximum(across, down) >= reach[:, first] + reach[:, second]
        valid = np.flatnonzero((is_separate & (across >= _MIN_DISTANCE * config.size)).all(axis=1))
        if valid.size:
            # Sorted by x, that is from left to right.
            layout = sorted(np.stack([x, y, radii], axis=2)[valid[0]].tolist())
            return tuple(
                ColoredShape(*pair, *circle) for pair, circle in zip(chosen, layout, strict=True)
            )


def paint(picture: Picture, shape: ColoredShape) -> Box:
    """Draw a shape into an image, and return the box of the pixels that changed."""
    # A window that contains the shape and its antialiased edge.
    rows, columns = (
        slice(max(int(center - shape.radius - 1.5), 0), int(center + shape.radius + 2.5))
        for center in (shape.y, shape.x)
    )
    window = picture[rows, columns]
    covered = coverage(shape, rows.start, columns.start, *window.shape[:2])[..., None]
    blended = np.rint((1 - covered) * window + covered * COLORS[shape.color]).astype(np.uint8)
    changed = (blended != window).any(axis=2)
    picture[rows, columns] = blended
    box = Image.fromarray(changed).getbbox()
    assert box is not None, "a shape differs from the background"
    left, top, right, bottom = box
    return Box(columns.start + left, rows.start + top, width=right - left, height=bottom - top)


def coverage(shape: ColoredShape, top: int, left: int, rows: int, columns: int) -> Plane:
    """Return the covered share of each pixel in the window at (left, top).

    The center of the upper left pixel of an image is at (0.5, 0.5).
    """
    y, x = np.mgrid[top : top + rows, left : left + columns] + 0.5
    distance = SHAPES[shape.shape]((x - shape.x) / shape.radius, (y - shape.y) / shape.radius)
    return np.clip(0.5 - shape.radius * distance, 0.0, 1.0)


# --- files


def write_scenes(config: ScenesConfig, folder: Path) -> list[Path]:
    """Write all splits, one scene at a time; return the paths of the files and of `examples`."""
    sizes = split_sizes(config.scenes)
    captions = [folder / f"{split}.jsonl" for split in sizes]
    images = [folder / f"{split}.npz" for split in sizes]
    examples = folder / "examples"
    require_only_generated(examples, _GENERATED)
    with ExitStack() as unfinished:
        pictures = unfinished.enter_context(replacing_folder(examples))
        for (split, count), *paths in zip(sizes.items(), captions, images, strict=True):
            temporary = [unfinished.enter_context(replacing(path)) for path in paths]
            _write_split(config, split, count, *temporary)
        for index in range(min(EXAMPLES, sizes["test"])):
            picture = draw_scene(config, "test", index).picture
            Image.fromarray(picture).save(pictures / f"{index}.png")
    return [*captions, *images, examples]


def _write_split(
    config: ScenesConfig, split: Split, count: int, captions: Path, images: Path
) -> None:
    """Write captions, and images as `numpy.savez_compressed` does, one image at a time."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, config.size, config.size, 3)}
    with (
        captions.open("w", encoding="utf-8", newline="\n") as lines,
        ZipFile(images, "w", ZIP_DEFLATED) as archive,
        archive.open("images.npy", "w", force_zip64=True) as array,
    ):
        np.lib.format.write_array_header_1_0(array, header)
        for index in range(count):
            captioned, picture, _ = draw_scene(config, split, index)
            boxes = [[box.x, box.y, box.width, box.height] for box in captioned.boxes]
            fields = {"index": index, "caption": captioned.captions[0], "boxes_xywh": boxes}
            lines.write(json.dumps(fields) + "\n")
            array.write(picture.tobytes())
