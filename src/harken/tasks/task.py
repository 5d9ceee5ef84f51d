"""The interface of a task, which the command line, reports and cost estimates use.

A task is one file with a subclass of `Task` and a `Predictor`, and one line in `recipe.py`.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeVar

import torch
from torch import nn

from harken.decode.sampling import SampleKey
from harken.encode.vocabulary import VocabularySizes
from harken.errors import DataWarning, UserError
from harken.formats.split import hold_out
from harken.tasks.attention_view import AttentionExample
from harken.tasks.prediction import Evaluation, Prediction
from harken.tasks.probe import ProbeSizes
from harken.training.loop import MicroBatch, Stage

Indices = Sequence[int] | None  # of inputs in the list that they are taken from; None: 0, 1, 2, …
Keys = Sequence[SampleKey]  # what the samples of inputs depend on, in addition to the seed


class TaskVocabulary(Protocol):
    """What `Task.fit` learns from the training data before training, such as a tokenizer."""

    @property
    def sizes(self) -> VocabularySizes: ...

    def to_json(self) -> str: ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `to_json` wrote."""
        ...


S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
R = TypeVar("R")
E = TypeVar("E")
V = TypeVar("V", bound=TaskVocabulary)
M = TypeVar("M", bound=nn.Module)


class SplitFiles(Protocol[S_co]):
    """The keys of [data] that set the splits; a number for `dev` is a share of `train`."""

    @property
    def train(self) -> S_co: ...
    @property
    def dev(self) -> S_co | float: ...
    @property
    def test(self) -> S_co | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPaths:
    """One file for each split; a number for `dev` is a share of `train`."""

    train: Path  # training file
    dev: Path | float = 0.1  # file to evaluate on, or a share of `train` that is held out
    test: Path | None = None  # file that is not used in training

    def __post_init__(self) -> None:
        require_share(self.dev)


class Splits(Mapping[str, Sequence[E]]):
    """Examples of `train`, `dev` and, if the recipe names it, `test`, read on first access."""

    def __init__(
        self,
        data: SplitFiles[S],
        read: Callable[[S], Sequence[E]],
        *,
        seed: int = 0,
        key: Callable[[E], str] = str,
        split: Callable[[Sequence[E], float], tuple[Sequence[E], Sequence[E]]] | None = None,
        read_train: Callable[[S], Sequence[E]] | None = None,
        check_train: Callable[[Sequence[E]], None] = lambda train: None,
    ) -> None:
        """A share for `dev` holds out examples by `key`, or as `split(examples, share)` does."""
        dev, divide = data.dev, split or partial(hold_out, seed=seed, key=key)

        @cache
        def divided() -> tuple[Sequence[E], Sequence[E]]:
            examples = (read_train or read)(data.train)
            return divide(examples, dev) if isinstance(dev, float) else (examples, ())

        def train() -> Sequence[E]:
            check_train(divided()[0])
            return divided()[0]

        self._readers: dict[str, Callable[[], Sequence[E]]] = {
            "train": cache(train),
            "dev": (lambda: divided()[1]) if isinstance(dev, float) else cache(partial(read, dev)),
        }
        if data.test is not None:
            self._readers["test"] = cache(partial(read, data.test))

    def __getitem__(self, name: str) -> Sequence[E]:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[R, E]):
    """How `harken new` writes a recipe of a task.

    `template` follows the lines of [data] that name the files. `{model.…}` in it is the default
    value of the recipe; a plain number differs from the default.
    """

    calls: Mapping[str, Sequence[str]]  # file names of a call -> their keys of [data]
    examples: str  # name of the examples, in the plural
    template: str = ""
    stage: str | None = None  # key of the stage whose `evaluate_every` depends on its steps
    count: Callable[[Sequence[E]], int] = len  # number of `examples` in a split
    check: Callable[[Sequence[Path]], Sequence[str]] = lambda files: ()  # notes for the user
    overrides: Callable[[Sequence[Path]], Sequence[str]] = lambda files: ()  # from the files
    suggest: Callable[[R, Splits[E]], Mapping[str, object]] = lambda recipe, splits: {}  # overrides


@dataclass(frozen=True, slots=True)
class Predictor(ABC, Generic[R, E, V, M]):
    """A trained model with its recipe and vocabulary."""

    recipe: R
    splits: Splits[E]  # for baselines, which are computed from the training examples
    vocabulary: V
    model: M
    batch_size: ClassVar[int | None] = None  # inputs of `predict_batch`; None: all

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Yield one prediction per input, in order.

        A sample depends on the seed and the index of its input. `times` requests the start and end
        of each word; it is only set for speech recognition.
        """
        keys = sample_keys(inputs, indices)
        size = self.batch_size or max(1, len(inputs))
        for start in range(0, len(inputs), size):
            batch = slice(start, start + size)
            yield from self.predict_batch(inputs[batch], keys[batch], nbest)

    @abstractmethod
    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterable[Prediction]:
        """Return one prediction per input, in order; `keys` seed their samples."""

    @abstractmethod
    def evaluate(self, examples: Sequence[E], condition: str | None = None) -> Evaluation:
        """Compute the metrics; `condition` is only set for speech recognition."""

    @abstractmethod
    def attention(self, text: str) -> AttentionExample | None:
        """Return the attention of an input and its output; None without tokens or attention."""


class Task(ABC, Generic[R, E, V, M]):
    """A task with its types of recipe, example, vocabulary and model."""

    inputs: ClassVar[Literal["lines", "sounds", "pictures"]] = "lines"
    recipe_type: type[R]
    vocabulary_type: type[V]
    predictor_type: type[Predictor[R, E, V, M]]
    layout: Layout[R, E]

    @abstractmethod
    def read_file(self, recipe: R, path: Path) -> Sequence[E]:
        """Read the examples of a file."""

    def read(self, recipe: R, paths: Sequence[Path]) -> Sequence[E]:
        """Read examples of other files than the recipe's."""
        if len(paths) != 1:
            raise UserError(
                f"expected one file of {self.layout.examples}, got {len(paths)}",
                fix="evaluate on one file at a time (command line: --data FILE)",
            )
        return self.read_file(recipe, paths[0])

    @abstractmethod
    def read_splits(self, recipe: R) -> Splits[E]: ...

    @abstractmethod
    def input(self, example: E) -> str:
        """Return the input of `predict` for an example; empty if it has none."""

    def target(self, example: E) -> str | None:
        """Return the correct output for `input`; None if several outputs may be correct."""
        return None

    @abstractmethod
    def fit(self, recipe: R, train: Sequence[E]) -> V: ...

    @abstractmethod
    def build(self, recipe: R, sizes: VocabularySizes) -> M: ...

    @abstractmethod
    def stages(self, recipe: R, splits: Splits[E], vocabulary: V, cache: Path) -> list[Stage[M]]:
        """Return the stages of training; encoded data are stored in the folder `cache`."""

    @abstractmethod
    def probe_sizes(self, recipe: R, rows: int | None, length: int | None) -> ProbeSizes:
        """Return the sizes of a training step; None means the recipe's or a typical size."""

    @abstractmethod
    def probe(
        self, recipe: R, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[M]:
        """Return a random batch without padding, with the training loss."""


def require_share(dev: object, files: str = "a file") -> None:
    """Raise if `dev` is a number that is not a share."""
    if isinstance(dev, float) and not 0 < dev < 1:
        raise ValueError(f"dev = {dev} is not a share (expected {files} or a number in (0, 1))")


def sample_keys(inputs: Sequence[object], indices: Indices = None) -> list[SampleKey]:
    """Return a key for each input: its index."""
    return [(index,) for index in (range(len(inputs)) if indices is None else indices)]


def file_calls(single: str, train: str, dev: str, test: str) -> dict[str, tuple[str, ...]]:
    """Return the calls of `harken new` with one, two or three files."""
    return {
        single: ("train",),
        f"{train} {dev}": ("train", "dev"),
        f"{train} {dev} {test}": ("train", "dev", "test"),
    }


def warn_unfit(count: int, total: int, examples: str, fate: str = "left out of training") -> None:
    """Warn that some training examples are too long, or too short, for the model."""
    if count:
        message = f"{count:,} of {total:,} {examples} do not fit the model and are {fate}"
        warnings.warn(message, DataWarning, stacklevel=3)
