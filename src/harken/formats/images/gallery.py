"""Captioned pictures with where their pixels or features are: files, or rows of one array.

    birds/1.jpg        a file
    train.npz#7        row 7 of an array, counted from 0

Whatever the place, `take` gives numbers of one size: a file is scaled to it, an array has it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, overload

import numpy as np
from jaxtyping import Shaped

from harken.errors import UserError
from harken.formats.examples import Box, Captioned
from harken.formats.images.arrays import FeatureMaps, Pictures
from harken.formats.images.files import image_size, read_image
from harken.formats.images.resize import Fit, resized_box
from harken.inputs import exists

_ROW = re.compile(r"(?P<file>.+)#(?P<row>[0-9]{1,18})")

Numbers = Shaped[np.ndarray, "B first second K"]  # pictures B Y X K, or maps B X Y K
Array = Pictures | FeatureMaps


class Place(Protocol):
    """Where the pictures of a set are."""

    def name(self, image: Path | int) -> str:
        """By which the picture can be asked for again."""
        ...

    def take(self, images: Sequence[Path | int]) -> Numbers: ...

    def moved(self, boxes: Sequence[Box], image: Path | int) -> tuple[Box, ...]:
        """Boxes of the picture, as boxes of what `take` gives."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """Pictures that are files, and the size that they are scaled to."""

    columns: int
    rows: int
    channels: Literal[1, 3]
    fit: Fit = "pad"

    def name(self, image: Path | int) -> str:
        return str(image)

    def take(self, images: Sequence[Path | int]) -> Numbers:
        size = (self.columns, self.rows)
        return np.stack(
            [
                read_image(self._file(one), channels=self.channels, size=size, fit=self.fit)
                for one in images
            ]
        )

    def moved(self, boxes: Sequence[Box], image: Path | int) -> tuple[Box, ...]:
        if not boxes:
            return ()
        original, size = image_size(self._file(image)), (self.columns, self.rows)
        return tuple(resized_box(box, original=original, size=size, fit=self.fit) for box in boxes)

    def _file(self, image: Path | int) -> Path:
        if isinstance(image, Path):
            return image
        raise UserError(
            f"found a caption of picture number {image}, wanted the array that holds it",
            fix="set data.images or data.features to it, or put it beside the captions with the "
            "same stem: train.npz beside train.jsonl",
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """Pictures or maps that are rows of one array."""

    array: Array

    def name(self, image: Path | int) -> str:
        return f"{self.array.path}#{self._row(image)}"

    def take(self, images: Sequence[Path | int]) -> Numbers:
        return self.array.take([self._row(one) for one in images])

    def moved(self, boxes: Sequence[Box], image: Path | int) -> tuple[Box, ...]:
        return tuple(boxes)

    def _row(self, image: Path | int) -> int:
        if isinstance(image, int):
            return image
        raise UserError(
            f"{image}: found a file, wanted a row of {self.array.path}",
            fix="name rows by 'index', or leave the array out and have all pictures as files",
        )


class Gallery(Sequence[Captioned]):
    """Examples whose pictures are in one place."""

    def __init__(self, examples: Sequence[Captioned], place: Place) -> None:
        self._examples, self.place = examples, place

    def __len__(self) -> int:
        return len(self._examples)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same captions of the same pictures, whatever their size."""
        if not isinstance(other, Gallery) or len(self) != len(other):
            return False
        return all(
            self[at] == other[at] and self.name(at) == other.name(at) for at in range(len(self))
        )

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, which: int) -> Captioned: ...
    @overload
    def __getitem__(self, which: slice) -> "Gallery": ...
    def __getitem__(self, which: int | slice) -> "Captioned | Gallery":
        if isinstance(which, slice):
            return Gallery(self._examples[which], self.place)
        return self._examples[which]

    def only(self, examples: Sequence[Captioned]) -> "Gallery":
        """Some of its examples."""
        return Gallery(examples, self.place)

    def name(self, which: int) -> str:
        return self.place.name(self._examples[which].image)

    def take(self, which: Sequence[int]) -> Numbers:
        return self.place.take([self._examples[one].image for one in which])

    def boxes(self, which: int) -> tuple[Box, ...]:
        """Those of an example's words, as places in what `take` gives."""
        one = self._examples[which]
        return self.place.moved(one.boxes, one.image)


def picture_named(name: str, files: Files | None, opened: Callable[[Path], Array]) -> Numbers:
    """One picture by its name; `files` is None where only arrays hold what is wanted."""
    row = None if exists(Path(name)) else _ROW.fullmatch(name)
    if row is not None:
        return Rows(array=opened(Path(row["file"]))).take([int(row["row"])])
    if files is None:
        raise UserError(
            f"{name}: found no row of an array, wanted one such as maps.npy#12",
            fix="this model reads maps that another network made of pictures; ask about these",
        )
    return files.take([Path(name)])
