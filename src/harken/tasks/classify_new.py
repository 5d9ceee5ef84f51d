"""What `harken new classify` writes: a recipe for texts, sounds or images."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harken.formats.arrays import read_image_array
from harken.formats.examples import LabeledExample
from harken.formats.labels import InputKind, detect_kind, has_label_lists
from harken.formats.sound import sound_rate
from harken.tasks.classify_data import ENCODINGS, ClassifyRecipe
from harken.tasks.task import Layout, Splits, file_calls

SAMPLED_SOUNDS = 200  # sounds of which `harken new` reads the headers
MAX_RATE = 16_000  # samples per second
EPOCHS: dict[InputKind, int] = {"text": 8, "sound": 30, "image": 20}
MIN_STEPS, MAX_STEPS = 200, 5000
DATA = """\
input = "{data.input}"    # "text", "sound" or "image"
labels = "{data.labels}"    # "multiple": an example may have several labels
"""
TRAINING = """
[training.labels]
steps = {training.labels.steps}
batch_size = {training.labels.batch_size}    # inputs per batch
evaluate_every = {training.labels.evaluate_every}    # steps; keeps the best weights; 0: never
"""
TEXT = """
[encode]
kind = "words"    # or "tokens": subwords

[model]
kind = "words"
width = {model.width}    # of a word embedding and its character features together
encoder.kind = "{model.encoder.kind}"    # or "lstm", "gru", "gated", "transformer"
pooling.kind = "{model.pooling.kind}"    # or "attention", which `harken inspect` shows; "mean"
dropout = {model.dropout}
"""
SOUND = """
[encode]
kind = "sound"
filterbank.sample_rate = {encode.filterbank.sample_rate}    # Hz; files at other rates are resampled
filterbank.mel_bins = {encode.filterbank.mel_bins}    # 40 are enough for 8000 Hz

[model]
kind = "sound"
width = {model.width}
encoder.kind = "{model.encoder.kind}"    # or "transformer", "lstm"
pooling.kind = "{model.pooling.kind}"    # or "max", "mean"
"""
IMAGE = """
[encode]
kind = "image"
images.columns = {encode.images.columns}    # image files are resized; an array must have this size
images.rows = {encode.images.rows}
images.channels = {encode.images.channels}    # 1 for gray

[model]
kind = "image"
width = {model.width}
frontend.kind = "{model.frontend.kind}"    # or "patch"
encoder.layers = {model.encoder.layers}    # of self-attention
pooling.kind = "{model.pooling.kind}"    # or "max", "mean"
"""
MODELS: dict[InputKind, str] = {"text": TEXT, "sound": SOUND, "image": IMAGE}


def template(recipe: ClassifyRecipe) -> str:
    """Return the text after the file names in [data]."""
    kind = recipe.data.input
    extra = {
        "text": "unk_dropout = {training.labels.unk_dropout}    # word dropout; 0.0 for none\n",
        "sound": "speeds = [0.9, 1.0, 1.1]    # speed perturbation; [1.0] for none\n",
        "image": "random_affine.translate = {training.labels.random_affine.translate}\n",
    }
    return DATA + MODELS[kind] + TRAINING + extra[kind]


def input_overrides(files: Sequence[Path]) -> list[str]:
    """Return overrides for the kind of input, and for the sizes of an array of images."""
    kind = detect_kind(files[0])
    encoding = ENCODINGS[kind][0]
    overrides = [f"data.input={kind}", f"encode.kind={encoding}", f"model.kind={encoding}"]
    if has_label_lists(files[0]):
        overrides.append("data.labels=multiple")
    sibling = files[0].with_suffix(".npz")
    if kind == "image" and sibling.is_file():
        array = read_image_array(sibling)
        sizes = {"columns": array.columns, "rows": array.rows, "channels": array.channels}
        overrides += [f"encode.images.{name}={size}" for name, size in sizes.items()]
    return overrides


def suggest(recipe: ClassifyRecipe, splits: Splits[LabeledExample]) -> dict[str, object]:
    """Suggest the number of steps, and for sounds the sample rate and the mel bins."""
    train, kind, config = splits["train"], recipe.data.input, recipe.training.labels
    steps = round(EPOCHS[kind] * len(train) / config.batch_size)
    overrides: dict[str, object] = {
        "training.labels.steps": min(max(steps, MIN_STEPS), MAX_STEPS),
    }
    if kind == "sound":
        files = [example.file for example in train if example.file is not None]
        sample = files[:: -(-len(files) // SAMPLED_SOUNDS)]
        rate = min(Counter(map(sound_rate, sample)).most_common(1)[0][0], MAX_RATE)
        overrides["encode.filterbank.sample_rate"] = rate
        overrides["encode.filterbank.mel_bins"] = 80 if rate > 8000 else 40
    return overrides


LAYOUT = Layout[ClassifyRecipe, LabeledExample](
    calls=file_calls("train.tsv", "train.tsv", "dev.tsv", "test.tsv"),
    template=template,
    examples="examples",
    stage="training.labels",
    folders=True,
    overrides=input_overrides,
    suggest=suggest,
)
