"""Drawn scenes: one to three things that do not touch, and a caption that names them.

    a red circle, and to the right of it a blue square   ->   "red circle blue square"

A caption goes from left to right, two words a thing: its colour and its shape. The box of each word
is that of its thing. What there is to learn: to look at one thing after another, and to tell what
it is wherever it stands. What there is not: grammar, or anything that is hidden.

With `new_pairs`, some pairs of colour and shape are kept for test: train and dev have none of them,
test has nothing else. Every colour and every shape is seen in training, only never together, so
what test falls short of dev is what a model has learned by heart.

Everything is a pure function of the seed, the part and an index: a scene is the same however many
others there are. On the disk:

    FOLDER/train.jsonl       {"index": 0, "caption": "red ring", "boxes_xywh": [[4, 9, 14, 14], …]}
    FOLDER/train.npz         images: uint8 [N, Y, X, 3]; the same for dev and test
    FOLDER/examples/0.png …  the first scenes of test
"""

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from PIL import Image

from harken.errors import UserError
from harken.files import replacing, replacing_folder
from harken.formats.examples import Captioned
from harken.formats.split import PARTS, Part, part_sizes
from harken.synthetic.chance import stream
from harken.synthetic.scenes.shapes import COLOURS, SHAPES, Picture, Thing, paint

MOST_SCENES = 100_000
MOST_THINGS = 4  # more would seldom find room
SIZES = (32, 512)
EXAMPLES = 8

PAIRS = tuple(product(COLOURS, SHAPES))
assert len(COLOURS) == len(SHAPES)  # so that a pair can be kept from each

_PAPER = (232, 248)  # the grey behind the things
_MARGIN = 1.25  # pixels around a thing: the soft edge of the sharpest corner ends within
# In sizes of a picture. Things stand further apart than their half widths differ, so that their
# left edges, their middles and their right edges come in the same order.
_RADII = (0.11, 0.17)
_STEP = 0.1
_LAYOUTS = 128  # tried together: of three things one layout in 25 is clear, of four in 800
_OURS = re.compile(r"\d+\.png")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnConfig:
    """How many scenes, a tenth each for dev and test, and what is in them."""

    scenes: int = 2000
    size: int = 48  # pixels, both ways
    least: int = 1  # things a scene
    most: int = 3
    noise: float = 3.0  # standard deviation, of the 255 steps of each channel
    new_pairs: bool = False  # train and dev lack the pairs that test consists of
    seed: int = 0

    def __post_init__(self) -> None:
        if not 3 <= self.scenes <= MOST_SCENES:
            raise ValueError(f"scenes must be from 3 to {MOST_SCENES}, found {self.scenes}")
        if not SIZES[0] <= self.size <= SIZES[1]:
            raise ValueError(f"size must be from {SIZES[0]} to {SIZES[1]}, found {self.size}")
        if not 1 <= self.least <= self.most <= MOST_THINGS:
            raise ValueError(
                f"least must be from 1 to most, and most at most {MOST_THINGS}, "
                f"found {self.least} and {self.most}"
            )
        if not 0 <= self.noise <= 64:
            raise ValueError(f"noise must be from 0 to 64, found {self.noise}")


class Drawn(NamedTuple):
    """A picture and what there is to say of it; things from left to right."""

    captioned: Captioned
    picture: Picture
    things: tuple[Thing, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnFiles:
    """Where `write_drawn` has put the captions and the pictures of each part, and the examples."""

    captions: dict[Part, Path]
    images: dict[Part, Path]
    examples: Path


def kept_pairs(seed: int) -> set[tuple[str, str]]:
    """The pairs that `new_pairs` keeps for test: one of each colour, and one of each shape."""
    shapes = stream("drawn pairs", seed).permutation(list(SHAPES)).tolist()
    return set(zip(COLOURS, shapes, strict=True))


def pairs_of(config: DrawnConfig, part: Part) -> list[tuple[str, str]]:
    """Colours and shapes that go together in a part."""
    if not config.new_pairs:
        return list(PAIRS)
    kept = kept_pairs(config.seed)
    return [pair for pair in PAIRS if (pair in kept) == (part == "test")]


def drawn(config: DrawnConfig, part: Part, index: int) -> Drawn:
    """One scene, drawn; its boxes are those of the picture before there was noise on it."""
    random = stream("drawn", config.seed, part, index)
    things = _things(config, pairs_of(config, part), random)
    picture = np.full((config.size, config.size, 3), random.integers(*_PAPER), dtype=np.uint8)
    boxes = [paint(picture, thing) for thing in things]
    noise = random.normal(0.0, config.noise, picture.shape)
    captioned = Captioned(
        image=index,
        captions=(" ".join(f"{thing.colour} {thing.shape}" for thing in things),),
        boxes=tuple(box for box in boxes for _ in ("colour", "shape")),
    )
    noisy = np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8)
    return Drawn(captioned, noisy, things)


def _things(
    config: DrawnConfig, pairs: list[tuple[str, str]], random: np.random.Generator
) -> tuple[Thing, ...]:
    """Pairs are drawn once, layouts until one of them is clear: every clear one is as likely."""
    count = int(random.integers(config.least, config.most, endpoint=True))
    chosen = [pairs[one] for one in random.integers(len(pairs), size=count)]
    one, other = np.triu_indices(count, 1)
    while True:
        radii = config.size * random.uniform(*_RADII, size=(_LAYOUTS, count))
        reach = radii + _MARGIN
        x, y = random.uniform(reach, config.size - reach, size=(2, *reach.shape))
        across, down = (np.abs(middle[:, one] - middle[:, other]) for middle in (x, y))
        apart = np.maximum(across, down) >= reach[:, one] + reach[:, other]
        clear = np.flatnonzero((apart & (across >= _STEP * config.size)).all(axis=1))
        if clear.size:
            layout = sorted(np.stack([x, y, radii], axis=2)[clear[0]].tolist())
            return tuple(Thing(*pair, *place) for pair, place in zip(chosen, layout, strict=True))


# --- files


def write_drawn(config: DrawnConfig, folder: Path) -> DrawnFiles:
    """Write every part, one scene at a time; no file gets its name before all are complete."""
    files = DrawnFiles(
        captions={part: folder / f"{part}.jsonl" for part in PARTS},
        images={part: folder / f"{part}.npz" for part in PARTS},
        examples=folder / "examples",
    )
    _refuse_strangers(files.examples)
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
    """What `numpy.savez_compressed` would write, without all pictures in memory."""
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


def _json(one: Captioned) -> str:
    boxes = [[box.x, box.y, box.width, box.height] for box in one.boxes]
    return json.dumps({"index": one.image, "caption": one.captions[0], "boxes_xywh": boxes})


def _refuse_strangers(examples: Path) -> None:
    """The folder will be replaced: it must hold nothing but what was made here before."""
    for path in examples.glob("*"):
        if not _OURS.fullmatch(path.name):
            raise UserError(
                f"{examples}: found {path.name!r} there, wanted a folder of made pictures only, "
                "since it is going to be replaced",
                fix="move that away, or choose another folder",
            )
