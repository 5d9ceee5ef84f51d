"""Image captioning: a decoder attends to places x, y of a picture and writes a caption.

    picture or feature map --front, encoder--> one state per place
    <end> caption          -> caption <end>        (decoder inputs, targets)

In training a picture with several captions is one example for each; in evaluation all are its
references. If the captions have boxes, it is measured whether each word attends to its box.
Pictures that are files are resized once and kept in the run folder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as cached
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harken.augment.affine import CameraConfig, move_camera
from harken.batch.bucketing import Order, seeded
from harken.batch.captions import CaptionBatch
from harken.batch.padding import IGNORE, told_and_wanted
from harken.batch.ragged import ragged
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.encode.pixels import MapsConfig, PixelsConfig
from harken.encode.subwords import UnitsConfig, WordsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary, VocabularySizes
from harken.errors import UserError
from harken.formats.images.arrays import FeatureMaps, Pictures, read_maps, read_pictures
from harken.formats.images.captions import read_captions
from harken.formats.images.gallery import Files, Numbers, Rows, picture_named
from harken.formats.text import require_file
from harken.inputs import is_file
from harken.layers.frontends import FeatureProjectionConfig, ImageSizes
from harken.layers.losses import cross_entropy_
from harken.measure.captions import caption_samples
from harken.models.captioner import Captioner, CaptionerConfig
from harken.tasks.caption_examples import (
    CaptionExample,
    encode_captions,
    load,
    resize_once,
)
from harken.tasks.caption_predictor import CaptionPredictor
from harken.tasks.task import (
    Layout,
    ProbeSizes,
    Splits,
    Task,
    file_calls,
    random_tokens,
    require_one_file,
    require_share,
)
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, MuonConfig, OptimiserConfig

DEV_PICTURES = 300  # captioned greedily at each evaluation during training
PROBE_LENGTH = 16  # tokens of a caption
TEMPLATE = """
[encode.pictures]
kind = "{encode.pictures.kind}"
columns = {encode.pictures.columns}    # files are scaled to this size, an array has it
rows = {encode.pictures.rows}
channels = {encode.pictures.channels}    # 1 for grey

[encode.units]
kind = "{encode.units.kind}"    # or "bpe", "unigram", "characters"

[model]
front.kind = "{model.front.kind}"    # or "patch"
encoder.layers = {model.encoder.layers}    # of attention between places: 2 or more where the
decoder.kind = "{model.decoder.kind}"    # is "transformer"
width = {model.width}

[training.captions]
steps = {training.captions.steps}
batch_captions = {training.captions.batch_captions}
evaluate_every = {training.captions.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
beam = {search.beam}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedCaptions:
    """A file of captions, and a list of the pictures to use, one name per line."""

    captions: Path
    listed: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionData:
    """Captions, and their pictures: files, one array `images`, or one array of maps `features`.

    An array beside the captions with their stem, train.npz beside train.jsonl, is found by itself.
    """

    train: ListedCaptions | Path
    dev: ListedCaptions | Path | float = 0.1
    test: ListedCaptions | Path | None = None
    images: Path | None = None
    features: Path | None = None
    scale: Path | None = None  # a factor for each channel of the features
    names: Path | None = None  # line n is the name of row n of the array
    folder: Path | None = None  # where the names of files begin

    def __post_init__(self) -> None:
        require_share(self.dev)
        if self.images is not None and self.features is not None:
            raise ValueError("images and features are two arrays; choose the one to look at")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionEncoding:
    """The size of pictures, and the tokens of text."""

    pictures: PixelsConfig | MapsConfig = field(default_factory=PixelsConfig)
    units: UnitsConfig = field(default_factory=WordsConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionStage(StageConfig):
    """`smoothing` is label smoothing: one picture has many captions."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = MuonConfig(rate=0.01, kernels=True, rest=AdamWConfig(rate=0.003))
    batch_captions: int = bounded(64, at_least=1, at_most=MAX_BATCH)
    smoothing: float = bounded(0.1, at_least=0.0, below=1.0)
    camera: CameraConfig = CameraConfig()  # random affine maps of the pictures


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionTraining:
    """One stage."""

    machine: MachineConfig = field(default_factory=MachineConfig)
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
    search: SearchConfig = SearchConfig(beam=5, most=64)

    def __post_init__(self) -> None:
        maps = isinstance(self.encode.pictures, MapsConfig)
        wanted = (
            self.data.features is not None,
            isinstance(self.model.front, FeatureProjectionConfig),
        )
        if wanted != (maps, maps):
            raise ValueError(
                "data.features, encode.pictures.kind = 'maps' and model.front.kind = 'map' belong "
                "together; set all of them or none"
            )
        if maps and not self.training.captions.camera.still:
            raise ValueError("training.captions.camera moves pictures, and maps are none; leave it")
        self.model.check(self.image_sizes)

    @property
    def image_sizes(self) -> ImageSizes:
        size = self.encode.pictures
        return ImageSizes(channels=size.channels, columns=size.columns, rows=size.rows)


def array_sizes(files: Sequence[Path]) -> list[str]:
    """The sizes of the array next to the captions; without one, pictures are resized."""
    beside = files[0].with_suffix(".npz")
    if not beside.is_file():
        return []
    array = read_pictures(beside)
    sizes = {"columns": array.columns, "rows": array.rows, "channels": array.channels}
    return [f"encode.pictures.{name}={size}" for name, size in sizes.items()]


class CaptionTask(Task[CaptionRecipe, CaptionExample, Vocabulary, Captioner]):
    """Image captioning."""

    inputs = "pictures"
    recipe_type = CaptionRecipe
    vocabulary_type = Vocabulary
    layout = Layout[CaptionRecipe, CaptionExample](
        calls=file_calls(
            "captions.jsonl", "captions.jsonl", "dev-captions.jsonl", "test-captions.jsonl"
        ),
        template=TEMPLATE,
        examples="pictures",
        stage="training.captions",
        overrides=array_sizes,
    )

    def read(self, recipe: CaptionRecipe, paths: Sequence[Path]) -> list[CaptionExample]:
        return read_examples(recipe, require_one_file(paths, "captions"))

    def read_splits(self, recipe: CaptionRecipe) -> Splits[CaptionExample]:
        return Splits(recipe.data, partial(read_examples, recipe), seed=recipe.seed, key=identity)

    def input(self, example: CaptionExample) -> str:
        return example.name

    def fit(self, recipe: CaptionRecipe, train: Sequence[CaptionExample]) -> Vocabulary:
        return recipe.encode.units.fit(text for example in train for text in example.captions)

    def build(self, recipe: CaptionRecipe, sizes: VocabularySizes) -> Captioner:
        return recipe.model.build(sizes.entries, recipe.image_sizes, recipe.seed)

    def stages(
        self,
        recipe: CaptionRecipe,
        splits: Splits[CaptionExample],
        vocabulary: Vocabulary,
        cache: Path,
    ) -> list[Stage[Captioner]]:
        config, pictures = recipe.training.captions, recipe.encode.pictures
        examples = resize_once(splits["train"], cache)
        texts, owners = encode_captions(examples, vocabulary, recipe.model.decoder.length)
        order = Order(np.ones(len(texts), dtype=np.int64), config.batch_captions, recipe.seed)

        def batch(step: int) -> list[CaptionBatch]:
            chosen = order.batch(step)
            pixels = pictures.encode(load([examples[owners[index]] for index in chosen]))
            pixels = move_camera(pixels, config.camera, seeded(recipe.seed, step))
            captions = ragged([texts[index] for index in chosen])
            return [CaptionBatch(pixels, *told_and_wanted(captions, END, END, PAD))]

        dev = splits["dev"][:DEV_PICTURES]
        greedy = replace(recipe, search=SearchConfig())

        def dev_cider(model: Captioner) -> float:
            found = self.bind(greedy, splits, vocabulary, model).search_examples(dev)
            outputs = vocabulary.decode([beam[0].tokens for beam in found])
            samples, _ = caption_samples(outputs, [example.captions for example in dev])
            return samples["cider_d"].value

        return [stage("captions", config, batch, caption_loss(config.smoothing), dev_cider)]

    def bind(
        self,
        recipe: CaptionRecipe,
        splits: Splits[CaptionExample],
        vocabulary: Vocabulary,
        model: Captioner,
    ) -> CaptionPredictor:
        return CaptionPredictor(
            vocabulary=vocabulary,
            model=model,
            pictures=recipe.encode.pictures,
            search=recipe.search,
            load_named=named_loader(recipe),
        )

    def probe_sizes(
        self, recipe: CaptionRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        config, tokens = recipe.training.captions, length or PROBE_LENGTH
        assumed = () if length else (f"a length of {tokens} (--length)",)
        return ProbeSizes(config, {"B": rows or config.batch_captions, "T": tokens}, assumed)

    def probe(
        self, recipe: CaptionRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[Captioner]:
        generator, shape = torch.Generator().manual_seed(0), (letters["B"], letters["T"])
        size = recipe.encode.pictures
        axes = (size.channels, size.rows, size.columns)
        if isinstance(recipe.model.front, FeatureProjectionConfig):
            axes = (size.columns, size.rows, size.channels)
        pictures = torch.randn(letters["B"], *axes, generator=generator)
        inputs, targets = (random_tokens(generator, vocabulary.entries, *shape) for _ in range(2))
        smoothing = recipe.training.captions.smoothing
        return micro_batch(CaptionBatch(pictures, inputs, targets), caption_loss(smoothing))


def identity(example: CaptionExample) -> str:
    """A key of a picture that depends neither on its folder nor on its captions."""
    image = example.image
    return "/".join(image.parts[-2:]) if isinstance(image, Path) else f"#{image}"


def read_examples(recipe: CaptionRecipe, file: ListedCaptions | Path) -> list[CaptionExample]:
    """Read captions and find their pictures."""
    data = recipe.data
    captions, listed = (
        (file.captions, file.listed) if isinstance(file, ListedCaptions) else (file, None)
    )
    require_file(captions)
    beside = captions.with_suffix(".npz")
    array = data.features or (beside if is_file(beside) else data.images)
    source = Rows(array=open_array(recipe, array)) if array else image_files(recipe)
    assert source is not None, "a recipe of feature maps names their array"
    rows = len(source.array) if isinstance(source, Rows) else None
    examples = read_captions(
        captions, folder=data.folder, rows=rows, names=data.names, listed=listed
    )
    return [
        CaptionExample(
            name=source.name(example.image),
            captions=example.captions,
            boxes=example.boxes,
            image=example.image,
            source=source,
        )
        for example in examples
    ]


def image_files(recipe: CaptionRecipe) -> Files | None:
    """How picture files are read; None for a model of feature maps."""
    size = recipe.encode.pictures
    if isinstance(size, MapsConfig):
        return None
    return Files(columns=size.columns, rows=size.rows, channels=size.channels, fit=size.fit)


def open_array(recipe: CaptionRecipe, path: Path) -> Pictures | FeatureMaps:
    """Open an array whose pictures or maps have the size that the model reads."""
    size = recipe.encode.pictures
    array: Pictures | FeatureMaps
    if isinstance(size, MapsConfig):
        array = read_maps(path, scale=recipe.data.scale)
    else:
        array = read_pictures(path)
    names = ("columns", "rows", "channels")
    found, wanted = ([getattr(record, name) for name in names] for record in (array, size))
    if found != wanted:
        sizes = [f"encode.pictures.{name}={size}" for name, size in zip(names, found, strict=True)]
        raise UserError(
            f"{path}: found columns, rows and channels {found}, wanted {wanted}",
            fix=f"train with the overrides {' '.join(sizes)}",
        )
    return array


def named_loader(recipe: CaptionRecipe) -> Callable[[str], Numbers]:
    """Load pictures by name; each array is opened once."""
    arrays = cached(partial(open_array, recipe))
    return lambda name: picture_named(name, image_files(recipe), arrays)


def caption_loss(smoothing: float) -> Callable[[Captioner, CaptionBatch], Tensor]:
    """Cross-entropy with label smoothing, summed over the targets."""

    def loss(model: Captioner, batch: CaptionBatch) -> Tensor:
        counted = batch.targets != IGNORE
        logits = model(batch.pictures, batch.inputs, at=counted)
        return cross_entropy_(logits, batch.targets[counted], smoothing).sum()

    return loss
