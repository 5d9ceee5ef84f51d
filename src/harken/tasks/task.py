"""The interface of a task: all that runs, reports, costs and the command line know about it.

A task is one file with a subclass of `Task` and a `Predictor`, and one line in `recipe.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.batch.padding import IGNORE_INDEX
from harken.encode.vocabulary import SPECIAL, VocabularySizes
from harken.errors import UserError
from harken.formats.split import hold_out
from harken.layers.losses import cross_entropy_
from harken.tasks.attention_view import AttentionExample
from harken.tasks.prediction import Evaluation, Indices, Prediction
from harken.training.loop import MicroBatch, Stage, StageConfig

PROBE_LENGTH = 32  # tokens of a row, if the recipe does not state it


class TaskVocabulary(Protocol):
    """What is learned from the training data before any weight, such as a tokenizer."""

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
    """The keys of [data] that name the splits; a number for `dev` is a share of `train`."""

    @property
    def train(self) -> S_co: ...
    @property
    def dev(self) -> S_co | float: ...
    @property
    def test(self) -> S_co | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPaths:
    """One file for each split; a number for `dev` is a share of `train`."""

    train: Path
    dev: Path | float = 0.1
    test: Path | None = None

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
        whole, dev, test = partial(read_train or read, data.train), data.dev, data.test
        divide = split or partial(hold_out, seed=seed, key=key)
        parts = cache(lambda: divide(whole(), dev) if isinstance(dev, float) else (whole(), []))

        @cache
        def train() -> Sequence[E]:
            check_train(parts()[0])
            return parts()[0]

        self._readers: dict[str, Callable[[], Sequence[E]]] = {
            "train": train,
            "dev": (lambda: parts()[1]) if isinstance(dev, float) else cache(partial(read, dev)),
        }
        if test is not None:
            self._readers["test"] = cache(partial(read, test))

    def __getitem__(self, name: str) -> Sequence[E]:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[R, E]):
    """What `harken new` knows about a task.

    `template` follows the lines of [data] that name the files. `{model.…}` in it is a value of the
    recipe, so that each default is written once; a plain number differs from the default.
    """

    calls: Mapping[str, Sequence[str]]  # file names of a call -> their keys of [data]
    examples: str  # what a split holds, in the plural
    template: str = ""
    stage: str | None = None  # the key of the stage whose `evaluate_every` depends on its steps
    count: Callable[[Sequence[E]], int] = len  # of `examples` in a split
    check: Callable[[Sequence[Path]], Sequence[str]] = lambda files: ()  # notes for the user
    overrides: Callable[[Sequence[Path]], Sequence[str]] = lambda files: ()  # from the files
    # Overrides from the examples.
    suggest: Callable[[R, Splits[E]], Mapping[str, object]] = lambda recipe, splits: {}


class ProbeSizes(NamedTuple):
    """Sizes of a training step that is traced without data.

    `letters`: B rows, T tokens, M source tokens, S frames, F features of a frame, W letters of a
    word.
    """

    stage: StageConfig  # in which a run spends most of its time
    letters: Mapping[str, int]
    assumed: tuple[str, ...] = ()  # sizes that the recipe does not state, in words


def token_sizes(
    stage: StageConfig, rows: int | None, length: int | None, batch_tokens: int, stated: int | None
) -> ProbeSizes:
    """Rows of as many tokens as the recipe states, or of a usual length if it states none."""
    tokens = length or stated or PROBE_LENGTH
    assumed = () if length or stated else (f"a length of {tokens} (--length)",)
    return ProbeSizes(stage, {"B": rows or max(1, batch_tokens // tokens), "T": tokens}, assumed)


@dataclass(frozen=True, slots=True)
class Predictor(ABC, Generic[R, E, V, M]):
    """A model with everything that it needs to answer."""

    recipe: R
    splits: Splits[E]  # baselines are computed from the training examples
    vocabulary: V
    model: M

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @abstractmethod
    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Yield one prediction per input, in order.

        A sample depends on the seed and the index of its input. `times` requests the start and end
        of every word; it is only set for tasks whose inputs are sounds.
        """

    @abstractmethod
    def evaluate(self, examples: Sequence[E], condition: str | None = None) -> Evaluation:
        """Compute the metrics; a condition is only set for tasks whose inputs are sounds."""

    @abstractmethod
    def attention(self, text: str) -> AttentionExample | None:
        """Return the attention of an input of `predict` and its output.

        None for an input without tokens and for a model without attention.
        """


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
        """Read examples that are not those of the recipe."""
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
        """The input of `predict` for an example; empty if there is none."""

    def target(self, example: E) -> str | None:
        """The one right output for `input`; None if several outputs may be right."""
        return None

    @abstractmethod
    def fit(self, recipe: R, train: Sequence[E]) -> V: ...

    @abstractmethod
    def build(self, recipe: R, sizes: VocabularySizes) -> M: ...

    @abstractmethod
    def stages(self, recipe: R, splits: Splits[E], vocabulary: V, cache: Path) -> list[Stage[M]]:
        """The stages of training; encoded data are kept in `cache` for a resumed run."""

    @abstractmethod
    def probe_sizes(self, recipe: R, rows: int | None, length: int | None) -> ProbeSizes:
        """The sizes of a training step; None stands for the recipe's own or a usual size."""

    @abstractmethod
    def probe(
        self, recipe: R, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[M]:
        """A random batch without padding, with the loss that training minimizes."""


def require_share(dev: object, what: str = "a file") -> None:
    """Raise if `dev` is a number that is not a share."""
    if isinstance(dev, float) and not 0 < dev < 1:
        raise ValueError(f"dev = {dev} is not a share (expected {what} or a number in (0, 1))")


def file_calls(single: str, train: str, dev: str, test: str) -> dict[str, tuple[str, ...]]:
    """Return the calls of `harken new` with one, two or three files."""
    return {
        single: ("train",),
        f"{train} {dev}": ("train", "dev"),
        f"{train} {dev} {test}": ("train", "dev", "test"),
    }


def random_tokens(generator: torch.Generator, below: int, *shape: int) -> Int[Tensor, "*shape"]:
    """Draw token numbers that are not special."""
    return torch.randint(min(len(SPECIAL), below - 1), below, shape, generator=generator)


def target_losses(
    model: nn.Module,
    targets: Int[Tensor, "B T"],
    *inputs: Tensor,
    smoothing: float = 0.0,
) -> Float[Tensor, "counted"]:
    """Return the cross-entropy of every counted target, in reading order."""
    counted = targets != IGNORE_INDEX
    return cross_entropy_(model(*inputs, at=counted), targets[counted], smoothing)
