"""CaptionedImage pictures: loaded, resized once for training, and with their captions encoded."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from harken.batch.ragged import Numbers as Tokens
from harken.encode.vocabulary import Vocabulary
from harken.errors import UserError
from harken.files import replacing
from harken.formats.arrays import read_pictures
from harken.formats.examples import Box
from harken.formats.image_source import ImageFiles, ImageRows, ImageSource, Numbers
from harken.inputs import exists
from harken.tasks.prediction import warn_unfit

BATCH_SIZE = 64  # pictures in one batch
PIXELS = "pixels.npy"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionExample:
    """A picture with its captions. Two are equal whatever size they are read at."""

    name: str  # a file, or a row of an array such as train.npz#7
    captions: tuple[str, ...]
    boxes: tuple[Box, ...] = ()  # of each word of the only caption; empty if not known
    image: Path | int = field(compare=False, repr=False)
    source: ImageSource = field(compare=False, repr=False)


def load(examples: Sequence[CaptionExample]) -> Numbers:
    """Load pictures of one source as one array."""
    return examples[0].source.take([example.image for example in examples])


def resize_once(examples: Sequence[CaptionExample], cache: Path) -> Sequence[CaptionExample]:
    """Store the resized files as one array, so that they are not decoded in every epoch."""
    size = examples[0].source
    if not isinstance(size, ImageFiles):
        return examples
    path = cache / PIXELS
    if not exists(path):
        shape = (len(examples), size.rows, size.columns, size.channels)
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        # Written, not memory-mapped: a full disk kills a process that writes to a mapped file.
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, len(examples), BATCH_SIZE):
                file.write(load(examples[start : start + BATCH_SIZE]).tobytes())
    source = ImageRows(array=read_pictures(path))
    return [replace(example, image=row, source=source) for row, example in enumerate(examples)]


def encode_captions(
    examples: Sequence[CaptionExample], vocabulary: Vocabulary, max_length: int
) -> tuple[list[Tokens], list[int]]:
    """Tokens of every caption that fits the decoder, and the index of its example."""
    pairs = [(text, index) for index, example in enumerate(examples) for text in example.captions]
    encoded = vocabulary.encode([text for text, _ in pairs])
    fits = [
        (tokens, index)
        for tokens, (_, index) in zip(encoded, pairs, strict=True)
        if len(tokens) < max_length
    ]
    if not fits:
        raise UserError(
            f"found no caption of less than {max_length} tokens, wanted some to learn from",
            fix="raise model.decoder.length",
        )
    warn_unfit(len(pairs) - len(fits), len(pairs), "captions")
    return [tokens for tokens, _ in fits], [index for _, index in fits]
