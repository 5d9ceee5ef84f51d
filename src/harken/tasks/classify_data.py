"""The recipe of the task `classify`, and its labels: a vocabulary and the loss."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from harken.batch.labeled import LabeledBatch
from harken.config import MAX_SEED, bounded
from harken.encode.vocabulary import Vocabulary, VocabularySizes
from harken.encode.words import WordVocabulary
from harken.errors import Failure, UserError
from harken.formats.examples import LabeledExample
from harken.formats.labels import LabelFormat, join_labels, read_labeled
from harken.inputs import read_json, short_path
from harken.layers.losses import cross_entropy_
from harken.models.classifier import Classifier, ClassifierConfig, WordClassifierConfig
from harken.tasks.classify_inputs import (
    ClassifyStage,
    InputReader,
    InputVocabulary,
)
from harken.tasks.classify_media import ImageEncoding, SoundEncoding
from harken.tasks.classify_text import TokenEncoding, WordEncoding
from harken.tasks.columns import LabeledImageColumns, LabeledSoundColumns, LabeledTextColumns
from harken.tasks.task import SplitPaths
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

MAX_BYTES = 2**26  # of a stored vocabulary
# Kinds of encoding and model for each kind of input.
ENCODINGS = {"text": ("words", "tokens"), "sound": ("sound",), "image": ("image",)}


Encoding = WordEncoding | TokenEncoding | SoundEncoding | ImageEncoding


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledData(SplitPaths):
    """The keys of [data] for all kinds of inputs."""

    # "multiple": an example may have any number of labels
    labels: Literal["single", "multiple"] = "single"


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledTexts(LabeledData):
    """Texts with labels; if `dev` is a share of `train`, equal texts stay in one split."""

    input: Literal["text"] = "text"
    columns: LabeledTextColumns = LabeledTextColumns()  # names of columns


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledSounds(LabeledData):
    """Sounds with labels, in a file or a folder for each label."""

    input: Literal["sound"] = "sound"
    columns: LabeledSoundColumns = LabeledSoundColumns()  # names of columns


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledImages(LabeledData):
    """Images with labels, in a file or a folder for each label."""

    input: Literal["image"] = "image"
    columns: LabeledImageColumns = LabeledImageColumns()  # names of columns


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyTraining:
    """Runtime, and the only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
    labels: ClassifyStage = field(default_factory=ClassifyStage)  # the only stage


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyRecipe:
    """Recipe of the task `classify`."""

    task: Literal["classify"] = "classify"  # classification
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: LabeledTexts | LabeledSounds | LabeledImages  # paths of the files, and their contents
    encode: Encoding = field(default_factory=WordEncoding)  # inputs to numbers
    model: ClassifierConfig = field(default_factory=WordClassifierConfig)  # architecture
    training: ClassifyTraining = field(default_factory=ClassifyTraining)  # training stage

    def __post_init__(self) -> None:
        if self.encode.kind != self.model.kind:
            raise ValueError(
                f"encode.kind = {self.encode.kind!r} and model.kind = {self.model.kind!r} must be "
                "equal"
            )
        if self.encode.input != self.data.input:
            raise ValueError(
                f"encode.kind and model.kind = {self.encode.kind!r} are for data.input = "
                f"{self.encode.input!r}, not {self.data.input!r}; set both to "
                f"{' or '.join(map(repr, ENCODINGS[self.data.input]))}"
            )
        self.training.labels.check_input(self.data.input)
        self.model.check(self.encode.sizes(VocabularySizes(0)))

    @property
    def is_multiple(self) -> bool:
        return self.data.labels == "multiple"

    def reader(self, vocabulary: "LabelVocabulary") -> InputReader:
        """Return the reader of the inputs."""
        return self.encode.reader(vocabulary.inputs, self.model.max_length)

    def read_examples(self, path: Path) -> list[LabeledExample]:
        """Read the examples of a file or folder."""
        columns = self.data.columns.of("train")
        return read_labeled(path, LabelFormat(self.data.input, columns, multiple=self.is_multiple))


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelVocabulary:
    """The labels of the training data with their counts, and the vocabulary of texts."""

    counts: Mapping[str, int]  # in sorted order, which defines the index of a label
    majority: str  # the most frequent output: a label, or several of them
    inputs: InputVocabulary

    def __repr__(self) -> str:
        return f"LabelVocabulary(labels={self.names}, inputs={self.inputs})"

    @property
    def names(self) -> list[str]:
        return list(self.counts)

    @property
    def sizes(self) -> VocabularySizes:
        return self.inputs.sizes._replace(tags=len(self.counts))

    def targets(self, examples: Sequence[LabeledExample], *, multiple: bool) -> Tensor:
        """Return the target of each example, as in `LabeledBatch`."""
        index = {name: number for number, name in enumerate(self.counts)}
        if not multiple:
            return torch.tensor([index[example.labels[0]] for example in examples])
        targets = torch.zeros(len(examples), len(index))
        for row, example in zip(targets, examples, strict=True):
            row[[index[label] for label in example.labels]] = 1.0
        return targets

    def to_json(self) -> str:
        fitted = self.inputs.words or self.inputs.tokens
        inputs = {} if fitted is None else json.loads(fitted.to_json())
        stored = {"labels": dict(self.counts), "majority": self.majority}
        return json.dumps({**inputs, **stored}, ensure_ascii=False, indent=1)

    @classmethod
    def load(cls, path: Path) -> "LabelVocabulary":
        """Read what `to_json` wrote."""
        try:
            stored = read_json(path, "a list of labels", max_bytes=MAX_BYTES)
            counts, majority = stored["labels"], stored["majority"]
            are_counts = all(type(count) is int and count > 0 for count in counts.values())
            if not counts or not are_counts or not isinstance(majority, str):
                raise ValueError("expected labels with their counts")
        except (UserError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"{short_path(path)}: the list of labels cannot be read ({error}; expected the "
                "file that the run wrote)",
                fix="restore it from a copy, or train again",
            ) from None
        words = WordVocabulary.load(path) if "words" in stored else None
        tokens = Vocabulary.load(path) if "model" in stored else None
        inputs = InputVocabulary(words, tokens)
        return cls(counts=counts, majority=majority, inputs=inputs)


def fit_labels(
    recipe: ClassifyRecipe, train: Sequence[LabeledExample], pretrained: Vocabulary | None = None
) -> LabelVocabulary:
    """Count the labels, and fit the vocabulary of texts unless it is given."""
    if pretrained is not None:
        inputs = InputVocabulary(tokens=pretrained)
    else:
        inputs = recipe.encode.fit([example.input for example in train])
    counts = Counter(label for example in train for label in example.labels)
    outputs = Counter(join_labels(example.labels) for example in train)
    return LabelVocabulary(
        counts={label: counts[label] for label in sorted(counts)},
        majority=min(outputs, key=lambda output: (-outputs[output], output)),
        inputs=inputs,
    )


def require_known_labels(
    recipe: ClassifyRecipe, train: Sequence[LabeledExample], vocabulary: LabelVocabulary
) -> None:
    """Raise an error for a label that the run in `model.start_from` does not have."""
    labels = {label for example in train for label in example.labels}
    if unknown := sorted(labels - set(vocabulary.names)):
        raise UserError(
            f"{recipe.data.train}: the label {unknown[0]!r} is not among the "
            f"{len(vocabulary.names)} labels of the run in model.start_from",
            fix="start from a Hugging Face folder, or train from random weights",
        )


def check_labels(recipe: ClassifyRecipe, train: Sequence[LabeledExample]) -> None:
    """Raise if the training examples have too few different labels.

    At least two are required, or one if an example may have several labels.
    """
    labels = {label for example in train for label in example.labels}
    if len(labels) < (1 if recipe.is_multiple else 2):
        raise UserError(
            f"{recipe.data.train}: expected examples of at least "
            f"{'one label' if recipe.is_multiple else 'two labels'}, got {sorted(labels)}",
            fix="add examples, or check data.columns",
        )


def labels_loss(
    recipe: ClassifyRecipe,
) -> Callable[[Classifier, LabeledBatch], Tensor]:
    """Return a function for the summed cross-entropy.

    With multiple labels, the loss of an example is the sum of the binary cross-entropies.
    """
    smoothing = recipe.training.labels.label_smoothing

    def single(model: Classifier, batch: LabeledBatch) -> Tensor:
        return cross_entropy_(model(*batch.inputs), batch.targets, smoothing).sum()

    def multiple(model: Classifier, batch: LabeledBatch) -> Tensor:
        targets = batch.targets * (1 - smoothing) + smoothing / 2
        logits: Float[Tensor, "B labels"] = model(*batch.inputs)
        return F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="sum")

    return multiple if recipe.is_multiple else single
