"""Images or feature maps of a dataset: files, or rows of an array.

`load_image` reads one of them by its name:

    birds/1.jpg        an image file, which is resized
    train.npz#7        row 7 of an array, counted from 0
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Shaped

from harken.errors import UserError
from harken.formats.arrays import FeatureMaps, ImageArray
from harken.formats.examples import Box
from harken.formats.image_file import Fit, image_size, read_image, resized_box
from harken.inputs import exists

_ROW = re.compile(r"(?P<file>.+)#(?P<row>[0-9]{1,18})")

ImageBatch = Shaped[np.ndarray, "B first second K"]  # images B Y X K, or maps B X Y K
Array = ImageArray | FeatureMaps


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFiles:
    """Images that are files, and the size to which they are resized."""

    columns: int
    rows: int
    channels: Literal[1, 3]
    fit: Fit = "pad"

    def name(self, image: Path | int) -> str:
        """Return the name by which `load_image` reads an image."""
        return str(image)

    def take(self, images: Sequence[Path | int]) -> ImageBatch:
        size, paths = (self.columns, self.rows), map(self._file, images)
        return np.stack(
            [read_image(path, channels=self.channels, size=size, fit=self.fit) for path in paths]
        )

    def resized_boxes(self, boxes: Sequence[Box], image: Path | int) -> tuple[Box, ...]:
        """Return boxes of an original image as boxes of the resized image."""
        if not boxes:
            return ()
        original, size = image_size(self._file(image)), (self.columns, self.rows)
        return tuple(resized_box(box, original=original, size=size, fit=self.fit) for box in boxes)

    def _file(self, image: Path | int) -> Path:
        if isinstance(image, Path):
            return image
        raise UserError(
            f"the captions refer to row {image} of an array (expected image files)",
            fix="set data.images or data.features to the array, or name it like the captions file: "
            "train.npz next to train.jsonl",
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageRows:
    """Images or maps that are rows of an array."""

    array: Array

    def name(self, image: Path | int) -> str:
        return f"{self.array.path}#{self._row(image)}"

    def take(self, images: Sequence[Path | int]) -> ImageBatch:
        return self.array.take([self._row(image) for image in images])

    def resized_boxes(self, boxes: Sequence[Box], image: Path | int) -> tuple[Box, ...]:
        return tuple(boxes)

    def _row(self, image: Path | int) -> int:
        if isinstance(image, int):
            return image
        raise UserError(
            f"{image}: expected a row of {self.array.path}, got a file",
            fix="refer to rows by 'index', or remove the array and give all images as files",
        )


ImageSource = ImageFiles | ImageRows


def load_image(
    name: str, files: ImageFiles | None, open_array: Callable[[Path], Array]
) -> ImageBatch:
    """Return a batch of one image; `files` is None for a model of feature maps."""
    row = None if exists(Path(name)) else _ROW.fullmatch(name)
    if row is not None:
        return ImageRows(array=open_array(Path(row["file"]))).take([int(row["row"])])
    if files is None:
        raise UserError(
            f"{name}: expected a row of an array, such as maps.npy#12",
            fix="this model reads feature maps that another network computed, not image files",
        )
    return files.take([Path(name)])
