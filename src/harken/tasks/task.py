"""The interface of a task, which the command line, reports and cost estimates use.

A task is one file with a subclass of `Task` and a `Predictor`, and one line in `recipe.py`.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeVar

import torch
from torch import nn

from harken.config import as_plain
from harken.config.schema import key_specs
from harken.decode.sampling import SampleKey
from harken.encode.pretrained import PretrainedTokenizer
from harken.encode.vocabulary import VocabularySizes
from harken.errors import DataWarning, UserError
from harken.formats.split import hold_out
from harken.layers.inference import optimized_for_inference
from harken.tasks.attention_view import AttentionExample
from harken.tasks.dummy_batches import DummySizes
from harken.tasks.prediction import Evaluation, Prediction
from harken.training.distributed import map_batches
from harken.training.loop import MicroBatch, Stage

Indices = Sequence[int] | None  # positions of inputs in a longer list; None: 0, 1, 2, …
InputForm = Literal["lines", "sounds", "images"]  # lines of text, or names of files
Keys = Sequence[SampleKey]  # one per input; with the seed, they determine the sampling


class TaskVocabulary(Protocol):
    """The result of `Task.fit`, which is computed before training, such as a tokenizer."""

    @property
    def sizes(self) -> VocabularySizes: ...

    def to_json(self) -> str: ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `to_json` wrote."""


S = TypeVar("S")  # file or files of a split
S_co = TypeVar("S_co", covariant=True)
R = TypeVar("R")  # recipe
E = TypeVar("E")  # example
V = TypeVar("V", bound=TaskVocabulary)
M = TypeVar("M", bound=nn.Module)


class SplitFiles(Protocol[S_co]):
    """The keys of [data] for the splits; a number for `dev` is a share of `train`."""

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
        read_train: Callable[[S], Sequence[E]] | None = None,
        check_train: Callable[[Sequence[E]], None] = lambda train: None,
        read_parts: Callable[[], tuple[Sequence[E], Sequence[E]]] | None = None,
    ) -> None:
        """If `dev` is a share, hold out examples by the hash of their `key`.

        If given, `read_parts` reads and splits `train` instead, and returns the training and the
        held-out examples.
        """
        dev = data.dev

        @cache
        def load() -> tuple[Sequence[E], Sequence[E]]:
            if read_parts is not None:
                return read_parts()
            examples = (read_train or read)(data.train)
            return hold_out(examples, dev, seed, key) if isinstance(dev, float) else (examples, ())

        def train() -> Sequence[E]:
            check_train(load()[0])
            return load()[0]

        self._readers: dict[str, Callable[[], Sequence[E]]] = {
            "train": cache(train),
            "dev": (lambda: load()[1]) if isinstance(dev, float) else cache(partial(read, dev)),
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

    `template` is the text after the file names in [data], or a function that returns it for a
    recipe. A placeholder such as `{model.width}` is replaced by the value of this key, after
    `overrides` and `suggest`.
    """

    calls: Mapping[str, Sequence[str]]  # example arguments -> the key of each file in [data]
    examples: str  # name of the examples, in the plural
    template: str | Callable[[R], str] = ""
    stage: str | None = None  # key of the stage whose `evaluate_every` is computed
    count: Callable[[Sequence[E]], int] = len  # number of `examples` in a split
    folders: bool = False  # whether `train` may be a folder
    # raises, or returns notes
    check: Callable[[R, Sequence[Path]], Sequence[str]] = lambda recipe, files: ()
    overrides: Callable[[Sequence[Path]], Sequence[str]] = lambda files: ()  # of recipe keys
    # overrides that depend on the data
    suggest: Callable[[R, Splits[E]], Mapping[str, object]] = lambda recipe, splits: {}


@dataclass(frozen=True, slots=True)
class Predictor(ABC, Generic[R, E, V, M]):
    """A trained model with its recipe and vocabulary."""

    recipe: R
    splits: Splits[E]  # for baselines, which are computed from the training examples
    vocabulary: V
    model: M
    # Number of inputs per call of `predict_batch`. With None, one call gets all inputs and divides
    # them among the processes itself, with `map_batches`.
    batch_size: ClassVar[int | None] = None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Yield one prediction per input, in order.

        Sampling depends on the seed and the index of the input. `times` requests the start and end
        of each word; it is only set for speech recognition.
        """
        with optimized_for_inference(self.model):
            yield from self._predict_batches(inputs, sample_keys(inputs, indices), nbest)

    def _predict_batches(
        self, inputs: Sequence[str], keys: Keys, nbest: int
    ) -> Iterator[Prediction]:
        size = self.batch_size
        if size is None:
            yield from self.predict_batch(inputs, keys, nbest)
            return
        batches = [slice(start, start + size) for start in range(0, len(inputs), size)]

        def predict_slice(batch: slice) -> list[Prediction]:
            return list(self.predict_batch(inputs[batch], keys[batch], nbest))

        yield from chain.from_iterable(map_batches(predict_slice, batches))

    @abstractmethod
    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterable[Prediction]:
        """Return one prediction per input, in order; `keys` seed the sampling."""

    @abstractmethod
    def evaluate(self, examples: Sequence[E], condition: str | None = None) -> Evaluation:
        """Compute the metrics; `condition` is only set for speech recognition."""

    @abstractmethod
    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention of an input; None if it is empty or the model has no attention.

        With `output`, the model reads this output (teacher forcing) instead of its own.
        """


class Task(ABC, Generic[R, E, V, M]):
    """A task with its types of recipe, example, vocabulary and model."""

    # Whether `predict` has word times and `evaluate` has conditions such as noise.
    recognizes_speech: ClassVar[bool] = False
    recipe_type: type[R]
    vocabulary_type: type[V]
    predictor_type: type[Predictor[R, E, V, M]]
    layout: Layout[R, E]

    def inputs(self, recipe: R) -> InputForm:
        """Return what the inputs of `predict` are."""
        return "lines"

    @abstractmethod
    def read_file(self, recipe: R, path: Path) -> Sequence[E]: ...

    def read(self, recipe: R, paths: Sequence[Path]) -> Sequence[E]:
        """Read examples from files that the recipe does not name."""
        if len(paths) != 1:
            raise UserError(
                f"data: expected one file of {self.layout.examples}, got {len(paths)}",
                fix="evaluate on one file at a time (command line: --data FILE)",
            )
        return self.read_file(recipe, paths[0])

    @abstractmethod
    def read_splits(self, recipe: R) -> Splits[E]: ...

    @abstractmethod
    def input(self, example: E) -> str:
        """Return the input of `predict` for an example; empty if there is none."""

    def target(self, example: E) -> str | None:
        """Return the correct output for `input`; None if several outputs may be correct."""
        return None

    @abstractmethod
    def fit(self, recipe: R, train: Sequence[E]) -> V: ...

    def fit_pretrained(self, recipe: R, train: Sequence[E], tokenizer: PretrainedTokenizer) -> V:
        """Return the vocabulary of a model that starts from a Hugging Face folder."""
        raise NotImplementedError

    def pretrained_keys(self, model: object) -> Mapping[str, object]:
        """Return the keys of a recipe that starts from a Hugging Face folder, but for [model]."""
        return {"encode": {"kind": "pretrained"}}

    def start_keys(self, model: object) -> Mapping[str, object] | None:
        """Return the keys of [model] for a model that starts from one with this config.

        None means that the task has no such model.
        """
        recipe_type: type = self.recipe_type
        return as_plain(model) if type(model) in key_specs(recipe_type)["model"].types else None

    @abstractmethod
    def build(self, recipe: R, sizes: VocabularySizes) -> M: ...

    @abstractmethod
    def stages(self, recipe: R, splits: Splits[E], vocabulary: V, cache: Path) -> list[Stage[M]]:
        """Return the training stages; `cache` is a folder for encoded data."""

    @abstractmethod
    def dummy_sizes(self, recipe: R, rows: int | None, length: int | None) -> DummySizes:
        """Return the sizes of `dummy_batch`; None means the recipe's or a typical size."""

    @abstractmethod
    def dummy_batch(
        self, recipe: R, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[M]:
        """Return a random batch without padding, with the training loss."""


def require_share(dev: object, files: str = "a file") -> None:
    """Raise ValueError if `dev` is a number outside (0, 1)."""
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


def warn_unfit(count: int, total: int, examples: str, action: str = "left out of training") -> None:
    """Warn that some training examples are too long, or too short, for the model."""
    if count:
        message = f"{count:,} of {total:,} {examples} do not fit the model and are {action}"
        warnings.warn(message, DataWarning, stacklevel=3)
