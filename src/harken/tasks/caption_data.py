"""The recipe of the task `caption`, and its data: images with captions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from harken.augment.affine import RandomAffineConfig
from harken.batch.ragged import IntArray as Tokens
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.encode.pixels import FeatureMapsConfig, PixelsConfig
from harken.encode.subwords import TokenizerConfig, WordsConfig
from harken.encode.vocabulary import Vocabulary
from harken.errors import UserError
from harken.formats.arrays import FeatureMaps, ImageArray, read_feature_maps, read_image_array
from harken.formats.captions import read_captions
from harken.formats.examples import Box
from harken.formats.image_source import ImageBatch, ImageFiles, ImageRows, ImageSource
from harken.formats.text import require_file
from harken.inputs import is_file
from harken.layers.frontends import FeatureProjectionConfig, ImageSizes
from harken.models.captioner import CaptionerConfig
from harken.tasks.stored_inputs import stored_pixels
from harken.tasks.task import require_share, warn_unfit
from harken.training.loop import StageConfig
from harken.training.optimizer import AdamWConfig, MuonConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

BATCH_SIZE = 64  # images
PIXELS = "pixels.npy"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionSplit:
    """Captions of some images."""

    captions: Path  # file of captions
    image_list: Path  # names of the images to use, one per line


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionData:
    """Captions, and their images: files, one array of images, or one array of feature maps.

    An array next to the captions, such as train.npz for train.jsonl, needs no key.
    """

    train: CaptionSplit | Path  # training captions
    dev: CaptionSplit | Path | float = 0.1  # validation captions, or a share to hold out
    test: CaptionSplit | Path | None = None  # captions that are not used in training
    images: Path | None = None  # array of images
    features: Path | None = None  # array of feature maps
    feature_scale: Path | None = None  # file with a factor for each channel of the feature maps
    array_names: Path | None = None  # names of the rows of the array, one per line
    image_folder: Path | None = None  # folder of the image files

    def __post_init__(self) -> None:
        require_share(self.dev)
        if self.images is not None and self.features is not None:
            raise ValueError("images and features are alternatives; set one of them")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionEncoding:
    """Encoding of images and captions."""

    images: PixelsConfig | FeatureMapsConfig = field(default_factory=PixelsConfig)  # image size
    tokenizer: TokenizerConfig = field(default_factory=WordsConfig)  # of captions


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionStage(StageConfig):
    """Training on images and captions."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    # Optimizer and learning rate.
    optimizer: OptimizerConfig = MuonConfig(
        lr=0.01, conv_kernels=True, fallback=AdamWConfig(lr=0.003)
    )
    batch_captions: int = bounded(64, at_least=1, at_most=MAX_BATCH)  # captions per batch
    label_smoothing: float = bounded(0.1, at_least=0.0, below=1.0)  # of the targets
    random_affine: RandomAffineConfig = RandomAffineConfig()  # augmentation of images


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionTraining:
    """Runtime, and the only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
    captions: CaptionStage = field(default_factory=CaptionStage)  # the only stage


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionRecipe:
    """Recipe of the task `caption`."""

    task: Literal["caption"] = "caption"  # image captioning
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: CaptionData  # paths of the files
    encode: CaptionEncoding = field(default_factory=CaptionEncoding)  # image size and tokenizer
    model: CaptionerConfig = field(default_factory=CaptionerConfig)  # architecture
    training: CaptionTraining = field(default_factory=CaptionTraining)  # training stage
    search: SearchConfig = SearchConfig(beam=5, max_tokens=64)  # beam search or sampling

    def __post_init__(self) -> None:
        has_features = isinstance(self.encode.images, FeatureMapsConfig)
        has_projection = isinstance(self.model.frontend, FeatureProjectionConfig)
        if not (self.data.features is not None) == has_features == has_projection:
            raise ValueError(
                "data.features, encode.images.kind = 'features' and model.frontend.kind = "
                "'features' require each other; set all of them or none"
            )
        if has_features and not self.training.captions.random_affine.is_identity:
            raise ValueError("training.captions.random_affine applies to images, not feature maps")
        self.model.check(self.image_sizes)

    @property
    def image_sizes(self) -> ImageSizes:
        config = self.encode.images
        return ImageSizes(channels=config.channels, columns=config.columns, rows=config.rows)

    @property
    def image_files(self) -> ImageFiles | None:
        """The reader of image files; None if the model reads feature maps."""
        config = self.encode.images
        if isinstance(config, FeatureMapsConfig):
            return None
        columns, rows, channels = config.columns, config.rows, config.channels
        return ImageFiles(columns=columns, rows=rows, channels=channels, fit=config.fit)

    def open_array(self, path: Path) -> ImageArray | FeatureMaps:
        """Open an array and check its columns, rows and channels."""
        config, names = self.encode.images, ("columns", "rows", "channels")
        array: ImageArray | FeatureMaps
        if isinstance(config, FeatureMapsConfig):
            array = read_feature_maps(path, scale=self.data.feature_scale)
        else:
            array = read_image_array(path)
        actual, expected = ([getattr(record, name) for name in names] for record in (array, config))
        if actual != expected:
            pairs = zip(names, actual, strict=True)
            sizes = " ".join(f"encode.images.{name}={size}" for name, size in pairs)
            raise UserError(
                f"{path}: wrong columns, rows and channels (expected {expected}, got {actual})",
                fix=f"use an array of the expected sizes, or train with {sizes}",
            )
        return array

    def read_examples(self, file: CaptionSplit | Path) -> list["CaptionExample"]:
        """Read captions and find their images."""
        captions, image_list = (
            (file.captions, file.image_list) if isinstance(file, CaptionSplit) else (file, None)
        )
        require_file(captions)
        sibling = captions.with_suffix(".npz")
        array = self.data.features or (sibling if is_file(sibling) else self.data.images)
        source = ImageRows(array=self.open_array(array)) if array else self.image_files
        assert source is not None, "feature maps require data.features"
        rows = len(source.array) if isinstance(source, ImageRows) else None
        folder, names = self.data.image_folder, self.data.array_names
        return [
            CaptionExample(
                name=source.name(captioned.image),
                captions=captioned.captions,
                boxes=captioned.boxes,
                image=captioned.image,
                source=source,
            )
            for captioned in read_captions(
                captions, folder=folder, rows=rows, names=names, image_list=image_list
            )
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionExample:
    """An image with its captions; `==` ignores `image` and `source`."""

    name: str  # a file, or a row of an array such as train.npz#7
    captions: tuple[str, ...]
    boxes: tuple[Box, ...] = ()  # one per word of a single caption; empty if unknown
    image: Path | int = field(compare=False, repr=False)
    source: ImageSource = field(compare=False, repr=False)

    @property
    def key(self) -> str:
        """Parent folder and file name, or the row; a share `dev` is selected by hashes of keys."""
        image = self.image
        return "/".join(image.parts[-2:]) if isinstance(image, Path) else f"#{image}"


def image_batches(count: int) -> list[slice]:
    """Return the slices that divide `count` images into batches."""
    return [slice(start, start + BATCH_SIZE) for start in range(0, count, BATCH_SIZE)]


def load_images(examples: Sequence[CaptionExample]) -> ImageBatch:
    """Load the images of examples, which have the same source."""
    return examples[0].source.take([example.image for example in examples])


def resize_once(examples: Sequence[CaptionExample], cache: Path) -> Sequence[CaptionExample]:
    """Store the resized images in one array, so that each file is decoded once."""
    files = examples[0].source
    if not isinstance(files, ImageFiles):
        return examples
    images = (load_images(examples[batch]) for batch in image_batches(len(examples)))
    array = stored_pixels(images, len(examples), files, cache / PIXELS)
    source = ImageRows(array=array)
    return [replace(example, image=row, source=source) for row, example in enumerate(examples)]


def encode_captions(
    examples: Sequence[CaptionExample], vocabulary: Vocabulary, max_length: int
) -> tuple[list[Tokens], list[int]]:
    """Return the tokens of each caption that fits the decoder, and the index of its example."""
    pairs = [(text, index) for index, example in enumerate(examples) for text in example.captions]
    encoded = vocabulary.encode([text for text, _ in pairs])
    fitting = [
        (tokens, index)
        for tokens, (_, index) in zip(encoded, pairs, strict=True)
        if len(tokens) < max_length
    ]
    if not fitting:
        raise UserError(
            f"no training caption has fewer than {max_length} tokens",
            fix="raise model.decoder.max_length",
        )
    warn_unfit(len(pairs) - len(fitting), len(pairs), "captions")
    return [tokens for tokens, _ in fitting], [index for _, index in fitting]
