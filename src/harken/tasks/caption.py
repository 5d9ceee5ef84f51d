"""Picture to text: a captioner looks at places x, y of a picture and writes what is there.

    picture or ready map --front, encoder--> memory, one state a place
    <end> caption        -> caption <end>        (what is told, what is wanted)

A picture with several captions is one example of each in training; in measuring, all are its
references. Where the captions of a set have boxes, it is measured whether each word looked into
its own. Pictures that are files are scaled once, and kept in the run folder.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as remembering
from functools import partial
from pathlib import Path
from typing import Literal, cast

import numpy as np
from torch import Tensor, nn

from harken.augment.affine import CameraConfig, move_camera
from harken.batch.bucketing import Order, seeded
from harken.batch.captions import CaptionBatch
from harken.batch.padding import IGNORE, told_and_wanted
from harken.batch.ragged import Numbers as TokenGrid
from harken.batch.ragged import ragged
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.encode.pixels import MapsConfig, PixelsConfig
from harken.encode.subwords import UnitsConfig, WordsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary
from harken.errors import UserError
from harken.files import replacing
from harken.formats.examples import Captioned
from harken.formats.images.arrays import FeatureMaps, Pictures, read_maps, read_pictures
from harken.formats.images.captions import read_captions
from harken.formats.images.gallery import Files, Gallery, Numbers, Rows, picture_named
from harken.formats.split import hold_out
from harken.formats.text import require_file
from harken.inputs import exists, is_file
from harken.layers.frontends import FeatureProjectionConfig, ImageSizes
from harken.layers.losses import cross_entropy_
from harken.measure.boxes import box_samples
from harken.measure.captions import caption_samples
from harken.measure.edit_distance import align_texts
from harken.models.captioner import Captioner, CaptionerConfig
from harken.tasks.seeing import TOGETHER, Viewer
from harken.tasks.task import (
    AttentionExample,
    Evaluation,
    Indices,
    Prediction,
    Trained,
    keys_of,
    one_of,
    prediction_of,
    single,
    warn_unfit,
)
from harken.training.loop import Stage, StageConfig
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, MuonConfig, OptimiserConfig

DEV_PICTURES = 300  # captioned greedily whenever training stops to evaluate
PIXELS = "pixels.npy"


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedCaptions:
    """A file of captions, and a list of the pictures that are meant, a name a line."""

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
        if isinstance(self.dev, float) and not 0 < self.dev < 1:
            raise ValueError(f"dev = {self.dev} is no share; wanted a file or a number in (0, 1)")
        if self.images is not None and self.features is not None:
            raise ValueError("images and features are two arrays; choose the one to look at")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionEncoding:
    """The size of what is looked at, and the units of text."""

    pictures: PixelsConfig | MapsConfig = field(default_factory=PixelsConfig)
    units: UnitsConfig = field(default_factory=WordsConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionStage(StageConfig):
    """`smoothing` of the targets keeps a model from being sure of one caption among many."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = MuonConfig(rate=0.01, kernels=True, rest=AdamWConfig(rate=0.003))
    batch_captions: int = bounded(64, at_least=1, at_most=MAX_BATCH)
    smoothing: float = bounded(0.1, at_least=0.0, below=1.0)
    camera: CameraConfig = CameraConfig()  # how much pictures are moved, anew each time


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionTraining:
    """One stage."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    captions: CaptionStage = field(default_factory=CaptionStage)


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionRecipe:
    """The whole of a run."""

    task: Literal["caption"] = "caption"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: CaptionData
    encode: CaptionEncoding = field(default_factory=CaptionEncoding)
    model: CaptionerConfig = field(default_factory=CaptionerConfig)
    training: CaptionTraining = field(default_factory=CaptionTraining)
    # An RNN may say "and black and black" for ever; no caption is as long.
    search: SearchConfig = SearchConfig(beam=5, most=64)

    def __post_init__(self) -> None:
        maps = isinstance(self.encode.pictures, MapsConfig)
        projects = isinstance(self.model.front, FeatureProjectionConfig)
        wanted = self.data.features is not None, projects
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


class CaptionTask:
    """See the top of this file."""

    files = "pictures"

    def read(self, recipe: CaptionRecipe) -> Mapping[str, Gallery]:
        data = recipe.data
        train = gallery_of(recipe, data.train)
        if isinstance(data.dev, float):
            rest, held = hold_out(train, data.dev, recipe.seed, key=identity)
            splits = {"train": train.only(rest), "dev": train.only(held)}
        else:
            splits = {"train": train, "dev": gallery_of(recipe, data.dev)}
        if data.test is not None:
            splits["test"] = gallery_of(recipe, data.test)
        return splits

    def read_files(self, recipe: CaptionRecipe, paths: Sequence[Path]) -> Gallery:
        return gallery_of(recipe, single(paths, "captions"))

    def fit(self, recipe: CaptionRecipe, splits: Mapping[str, Gallery]) -> Vocabulary:
        return recipe.encode.units.fit(text for one in splits["train"] for text in one.captions)

    def restore(self, path: Path) -> Vocabulary:
        return Vocabulary.load(path)

    def build(self, recipe: CaptionRecipe, fitted: Vocabulary) -> Captioner:
        return recipe.model.build(len(fitted), recipe.image_sizes, recipe.seed)

    def stages(
        self,
        recipe: CaptionRecipe,
        splits: Mapping[str, Gallery],
        fitted: Vocabulary,
        cache: Path,
    ) -> list[Stage]:
        config, pictures = recipe.training.captions, recipe.encode.pictures
        gallery = scaled_once(splits["train"], cache)
        texts, owners = encode_captions(gallery, fitted, recipe.model.decoder.length)
        order = Order(np.ones(len(texts), dtype=np.int64), config.batch_captions, recipe.seed)

        def batch(step: int) -> list[CaptionBatch]:
            chosen = order.batch(step)
            seen = pictures.encode(gallery.take([owners[one] for one in chosen]))
            seen = move_camera(seen, config.camera, seeded(recipe.seed, step))
            said = told_and_wanted(ragged([texts[one] for one in chosen]), END, END, PAD)
            return [CaptionBatch(seen, *said)]

        def loss(model: nn.Module, part: CaptionBatch) -> Tensor:
            return caption_loss(model, part, config.smoothing)

        dev = splits["dev"][:DEV_PICTURES]
        greedy = replace(recipe, search=SearchConfig())

        def dev_score(model: nn.Module) -> float:
            viewer = viewer_of(Trained(recipe=greedy, fitted=fitted, model=model))
            said = fitted.decode([found[0].tokens for found in viewer.captions(dev)])
            samples, _ = caption_samples(said, [one.captions for one in dev])
            return samples["cider_d"].value

        return [Stage(name="captions", config=config, batch=batch, loss=loss, evaluate=dev_score)]

    def evaluate(self, trained: Trained, examples: Gallery) -> Evaluation:
        viewer = viewer_of(trained)
        found = viewer.captions(examples)
        predictions = [
            prediction_of(examples.name(at), one, trained.fitted, 1) for at, one in enumerate(found)
        ]
        outputs = [one.output for one in predictions]
        references = [one.captions for one in examples]
        samples, notes = caption_samples(outputs, references)
        if any(one.boxes for one in examples):
            looked, told = box_samples(
                [examples.boxes(at) for at in range(len(examples))],
                viewer.looks(examples, [one[0].tokens for one in found]),
                align_texts(outputs, [first for first, *_ in references], units="words"),
            )
            samples, notes = {**samples, **looked}, {**notes, **told}
        return Evaluation(
            n=len(examples),
            samples=samples,
            notes=notes,
            predictions=predictions,
            expected=[first for first, *_ in references],
        )

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        """Inputs are names of files, or of rows of arrays such as test.npz#7."""
        viewer, named, keys = viewer_of(trained), naming(trained.recipe), keys_of(inputs, indices)
        for start in range(0, len(inputs), TOGETHER):
            names = inputs[start : start + TOGETHER]
            pictures = np.concatenate([named(name) for name in names])
            captions = viewer.caption(pictures, nbest, keys[start : start + TOGETHER])
            for name, found in zip(names, captions, strict=True):
                yield prediction_of(name, found, trained.fitted, nbest)

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample | None:
        pairs = list(zip(evaluation.predictions, evaluation.expected, strict=True))
        said = [(one, text) for one, text in pairs if one.output] or pairs
        right = [one.output == text for one, text in said]
        return self.look(trained, said[one_of(right)][0].input) if said else None

    def look(self, trained: Trained, asked: str) -> AttentionExample | None:
        """One picture, by the name of its file or of its row."""
        return viewer_of(trained).glimpse(naming(trained.recipe)(asked), Path(asked).name)

    def inputs(self, trained: Trained, count: int) -> list[str]:
        dev = self.read(trained.recipe)["dev"][:count]
        return [dev.name(at) for at in range(len(dev))]


def identity(one: Captioned) -> str:
    """What makes a picture itself wherever its folder is, whatever is said of it."""
    return "/".join(one.image.parts[-2:]) if isinstance(one.image, Path) else f"#{one.image}"


def viewer_of(trained: Trained) -> Viewer:
    """The model with the rest of its recipe around it."""
    recipe = trained.recipe
    return Viewer(
        model=cast(Captioner, trained.model),
        vocabulary=trained.fitted,
        pictures=recipe.encode.pictures,
        search=recipe.search,
    )


def gallery_of(recipe: CaptionRecipe, where: ListedCaptions | Path) -> Gallery:
    """The captions of a file, with their pictures."""
    data = recipe.data
    if isinstance(where, ListedCaptions):
        captions, listed = where.captions, where.listed
    else:
        captions, listed = where, None
    require_file(captions)
    beside = captions.with_suffix(".npz")
    array = data.features or (beside if is_file(beside) else data.images)
    place = Rows(array=opened(recipe, array)) if array else files_of(recipe)
    assert place is not None, "a recipe of ready maps names the array of them"
    rows = len(place.array) if isinstance(place, Rows) else None
    examples = read_captions(
        captions, folder=data.folder, rows=rows, names=data.names, listed=listed
    )
    return Gallery(examples, place)


def files_of(recipe: CaptionRecipe) -> Files | None:
    """How picture files are read; None for a model of ready maps."""
    size = recipe.encode.pictures
    if isinstance(size, MapsConfig):
        return None
    return Files(columns=size.columns, rows=size.rows, channels=size.channels, fit=size.fit)


def opened(recipe: CaptionRecipe, path: Path) -> Pictures | FeatureMaps:
    """An array, if its pictures or maps are of the size that the model looks at."""
    size = recipe.encode.pictures
    if isinstance(size, MapsConfig):
        array: Pictures | FeatureMaps = read_maps(path, scale=recipe.data.scale)
    else:
        array = read_pictures(path)
    names = ("columns", "rows", "channels")
    found, wanted = ([getattr(one, name) for name in names] for one in (array, size))
    if found != wanted:
        sizes = [f"encode.pictures.{name}={size}" for name, size in zip(names, found, strict=True)]
        raise UserError(
            f"{path}: found columns, rows and channels {found}, wanted {wanted}",
            fix=f"train with the overrides {' '.join(sizes)}",
        )
    return array


def naming(recipe: CaptionRecipe) -> Callable[[str], Numbers]:
    """Pictures by name, each array opened once."""
    arrays = remembering(partial(opened, recipe))
    return lambda name: picture_named(name, files_of(recipe), arrays)


def scaled_once(gallery: Gallery, cache: Path) -> Gallery:
    """The same with its files as one array on disk, so that no epoch decodes them again."""
    if not isinstance(gallery.place, Files):
        return gallery
    path, size = cache / PIXELS, gallery.place
    if not exists(path):
        shape = (len(gallery), size.rows, size.columns, size.channels)
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        # Written, not memory-mapped: a full disk kills a process that writes to a mapped file.
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, len(gallery), TOGETHER):
                some = range(start, min(start + TOGETHER, len(gallery)))
                file.write(gallery.take(some).tobytes())
    examples = [replace(one, image=at) for at, one in enumerate(gallery)]
    return Gallery(examples, Rows(array=read_pictures(path)))


def encode_captions(
    gallery: Gallery, vocabulary: Vocabulary, longest: int
) -> tuple[list[TokenGrid], list[int]]:
    """TokenGrid of every caption that the decoder has room for, and the example that it is of."""
    pairs = [(text, at) for at, one in enumerate(gallery) for text in one.captions]
    encoded = vocabulary.encode([text for text, _ in pairs])
    fits = [(text, at) for text, (_, at) in zip(encoded, pairs, strict=True) if len(text) < longest]
    if not fits:
        raise UserError(
            f"found no caption of less than {longest} tokens, wanted some to learn from",
            fix="raise model.decoder.length",
        )
    warn_unfit(len(pairs) - len(fits), len(pairs), "captions")
    return [text for text, _ in fits], [at for _, at in fits]


def caption_loss(model: nn.Module, batch: CaptionBatch, smoothing: float) -> Tensor:
    """Return the summed loss of the targets."""
    counted = batch.targets != IGNORE
    logits = model(batch.pictures, batch.inputs, at=counted)
    return cross_entropy_(logits, batch.targets[counted], smoothing).sum()
