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
from harken.errors import Failure, UserError
from harken.formats.examples import LabeledExample
from harken.formats.labels import InputKind, LabelFormat, join_labels, read_labeled
from harken.inputs import read_json, short_path
from harken.layers.losses import cross_entropy_
from harken.models.classifier import Classifier, ClassifierConfig, TextClassifierConfig
from harken.tasks.classify_inputs import ClassifyStage, Encoding, InputReader, TextEncoding
from harken.tasks.task import SplitPaths
from harken.training.runtime import RuntimeConfig

MAX_BYTES = 2**26  # of a stored vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelColumns:
    """Names of columns, or of keys of JSON lines, that differ from those of the fields."""

    text: str | None = None  # column of the texts; default: text
    audio: str | None = None  # column of the sound files; default: audio
    image: str | None = None  # column of the image files; default: image
    label: str | None = None  # column of the labels; default: label


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyData(SplitPaths):
    """Files of labeled inputs; if `dev` is a share of `train`, equal inputs stay in one split."""

    input: InputKind = "text"  # kind of the inputs
    # "multiple": an example may have any number of labels
    labels: Literal["single", "multiple"] = "single"
    columns: LabelColumns = LabelColumns()  # names of columns

    @property
    def format(self) -> LabelFormat:
        """The contents of the files."""
        names = ("text", "audio", "image", "label")
        given = ((name, getattr(self.columns, name)) for name in names)
        columns = {name: column for name, column in given if column is not None}
        return LabelFormat(self.input, self.labels == "multiple", columns)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyTraining:
    """Runtime, and the only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    labels: ClassifyStage = field(default_factory=ClassifyStage)  # the only stage


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyRecipe:
    """Recipe of the task `classify`."""

    task: Literal["classify"] = "classify"  # classification
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: ClassifyData  # paths of the files, and what they contain
    encode: Encoding = field(default_factory=TextEncoding)  # inputs to numbers
    model: ClassifierConfig = field(default_factory=TextClassifierConfig)  # architecture
    training: ClassifyTraining = field(default_factory=ClassifyTraining)  # training stage

    def __post_init__(self) -> None:
        kinds = {self.data.input, self.encode.kind, self.model.kind}
        if len(kinds) > 1:
            raise ValueError(
                f"data.input = {self.data.input!r}, encode.kind = {self.encode.kind!r} and "
                f"model.kind = {self.model.kind!r} must be equal"
            )
        self.training.labels.check_input(self.data.input)
        self.model.check(self.encode.sizes(0))

    @property
    def is_multiple(self) -> bool:
        return self.data.labels == "multiple"

    def reader(self, vocabulary: "LabelVocabulary") -> InputReader:
        """Return the reader of the inputs."""
        return self.encode.reader(vocabulary.tokenizer, self.model.max_length)

    def read_examples(self, path: Path) -> list[LabeledExample]:
        """Read the examples of a file or folder."""
        return read_labeled(path, self.data.format)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelVocabulary:
    """The labels of the training data with their counts, and the tokenizer of texts."""

    counts: Mapping[str, int]  # in sorted order, which defines the index of a label
    majority: str  # the most frequent output: a label, or several of them
    tokenizer: Vocabulary | None

    def __repr__(self) -> str:
        return f"LabelVocabulary(labels={self.names}, tokenizer={self.tokenizer})"

    @property
    def names(self) -> list[str]:
        return list(self.counts)

    @property
    def sizes(self) -> VocabularySizes:
        return VocabularySizes(len(self.tokenizer or ()), tags=len(self.counts))

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
        tokenizer = {} if self.tokenizer is None else json.loads(self.tokenizer.to_json())
        stored = {"labels": dict(self.counts), "majority": self.majority}
        return json.dumps({**tokenizer, **stored}, ensure_ascii=False, indent=1)

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
        tokenizer = Vocabulary.load(path) if "model" in stored else None
        return cls(counts=counts, majority=majority, tokenizer=tokenizer)


def fit_labels(
    recipe: ClassifyRecipe, train: Sequence[LabeledExample], pretrained: Vocabulary | None = None
) -> LabelVocabulary:
    """Count the labels, and fit the tokenizer of texts unless it is given."""
    counts = Counter(label for example in train for label in example.labels)
    outputs = Counter(join_labels(example.labels) for example in train)
    return LabelVocabulary(
        counts={label: counts[label] for label in sorted(counts)},
        majority=min(outputs, key=lambda output: (-outputs[output], output)),
        tokenizer=pretrained or recipe.encode.fit([example.input for example in train]),
    )


def check_labels(recipe: ClassifyRecipe, train: Sequence[LabeledExample]) -> None:
    """Raise unless the training examples have at least two labels, or one of several labels."""
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
