"""The recipe of the task `caption`, and its data: pictures with captions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from harken.augment.affine import RandomAffineConfig
from harken.batch.ragged import Numbers as Tokens
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.encode.pixels import FeatureMapsConfig, PixelsConfig
from harken.encode.subwords import TokenizerConfig, WordsConfig
from harken.encode.vocabulary import Vocabulary
from harken.errors import UserError
from harken.files import replacing
from harken.formats.arrays import FeatureMaps, Pictures, read_maps, read_pictures
from harken.formats.captions import read_captions
from harken.formats.examples import Box
from harken.formats.image_source import ImageFiles, ImageRows, ImageSource, Numbers
from harken.formats.text import require_file
from harken.inputs import exists, is_file
from harken.layers.frontends import FeatureProjectionConfig, ImageSizes
from harken.models.captioner import CaptionerConfig
from harken.tasks.prediction import warn_unfit
from harken.tasks.task import (
    require_share,
)
from harken.training.loop import StageConfig
from harken.training.optimizer import AdamWConfig, MuonConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig

BATCH_SIZE = 64  # pictures in one batch
PIXELS = "pixels.npy"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionSplit:
    """A file of captions, and a list of the pictures to use, one name per line."""

    captions: Path
    image_list: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionData:
    """Captions, and their pictures: files, one array `images`, or one array of maps `features`.

    An array beside the captions with their stem, train.npz beside train.jsonl, is found by itself.
    """

    train: CaptionSplit | Path
    dev: CaptionSplit | Path | float = 0.1
    test: CaptionSplit | Path | None = None
    images: Path | None = None
    features: Path | None = None
    feature_scale: Path | None = None  # a factor for each channel of the features
    array_names: Path | None = None  # line n is the name of row n of the array
    image_folder: Path | None = None  # where the names of files begin

    def __post_init__(self) -> None:
        require_share(self.dev)
        if self.images is not None and self.features is not None:
            raise ValueError("images and features are two arrays; choose one")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionEncoding:
    """The size of pictures, and the tokens of text."""

    images: PixelsConfig | FeatureMapsConfig = field(default_factory=PixelsConfig)
    tokenizer: TokenizerConfig = field(default_factory=WordsConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionStage(StageConfig):
    """`label_smoothing` allows for an image having many correct captions."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)
    optimizer: OptimizerConfig = MuonConfig(
        lr=0.01, conv_kernels=True, fallback=AdamWConfig(lr=0.003)
    )
    batch_captions: int = bounded(64, at_least=1, at_most=MAX_BATCH)
    label_smoothing: float = bounded(0.1, at_least=0.0, below=1.0)
    random_affine: RandomAffineConfig = RandomAffineConfig()  # random affine maps of the pictures


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionTraining:
    """One stage."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    captions: CaptionStage = field(default_factory=CaptionStage)


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionRecipe:
    """The recipe of a run."""

    task: Literal["caption"] = "caption"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: CaptionData
    encode: CaptionEncoding = field(default_factory=CaptionEncoding)
    model: CaptionerConfig = field(default_factory=CaptionerConfig)
    training: CaptionTraining = field(default_factory=CaptionTraining)
    # An RNN may repeat "and black and black" without end.
    search: SearchConfig = SearchConfig(beam=5, max_tokens=64)

    def __post_init__(self) -> None:
        maps = isinstance(self.encode.images, FeatureMapsConfig)
        front_of_maps = isinstance(self.model.frontend, FeatureProjectionConfig)
        if not (self.data.features is not None) == maps == front_of_maps:
            raise ValueError(
                "data.features, encode.images.kind = 'maps' and model.frontend.kind = 'map' belong "
                "together; set all of them or none"
            )
        if maps and not self.training.captions.random_affine.still:
            raise ValueError("training.captions.random_affine applies to pictures, not to maps")
        self.model.check(self.image_sizes)

    @property
    def image_sizes(self) -> ImageSizes:
        size = self.encode.images
        return ImageSizes(channels=size.channels, columns=size.columns, rows=size.rows)


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
            f"no training caption has fewer than {max_length} tokens",
            fix="raise model.decoder.max_length",
        )
    warn_unfit(len(pairs) - len(fits), len(pairs), "captions")
    return [tokens for tokens, _ in fits], [index for _, index in fits]


def identity(example: CaptionExample) -> str:
    """A key of a picture that depends neither on its folder nor on its captions."""
    image = example.image
    return "/".join(image.parts[-2:]) if isinstance(image, Path) else f"#{image}"


def read_examples(recipe: CaptionRecipe, file: CaptionSplit | Path) -> list[CaptionExample]:
    """Read captions and find their pictures."""
    data = recipe.data
    captions, listed = (
        (file.captions, file.image_list) if isinstance(file, CaptionSplit) else (file, None)
    )
    require_file(captions)
    beside = captions.with_suffix(".npz")
    array = data.features or (beside if is_file(beside) else data.images)
    source = ImageRows(array=open_array(recipe, array)) if array else image_files(recipe)
    assert source is not None, "a recipe of feature maps names their array"
    rows = len(source.array) if isinstance(source, ImageRows) else None
    examples = read_captions(
        captions, folder=data.image_folder, rows=rows, names=data.array_names, listed=listed
    )
    return [
        CaptionExample(
            name=source.name(item.image),
            captions=item.captions,
            boxes=item.boxes,
            image=item.image,
            source=source,
        )
        for item in examples
    ]


def image_files(recipe: CaptionRecipe) -> ImageFiles | None:
    """How picture files are read; None for a model of feature maps."""
    size = recipe.encode.images
    if isinstance(size, FeatureMapsConfig):
        return None
    return ImageFiles(columns=size.columns, rows=size.rows, channels=size.channels, fit=size.fit)


def open_array(recipe: CaptionRecipe, path: Path) -> Pictures | FeatureMaps:
    """Open an array whose pictures or maps have the size that the model reads."""
    size = recipe.encode.images
    array: Pictures | FeatureMaps
    if isinstance(size, FeatureMapsConfig):
        array = read_maps(path, scale=recipe.data.feature_scale)
    else:
        array = read_pictures(path)
    names = ("columns", "rows", "channels")
    actual, expected = ([getattr(record, name) for name in names] for record in (array, size))
    if actual != expected:
        sizes = [f"encode.images.{name}={size}" for name, size in zip(names, actual, strict=True)]
        raise UserError(
            f"{path}: wrong columns, rows and channels (expected {expected}, got {actual})",
            fix=f"train with the overrides {' '.join(sizes)}",
        )
    return array
