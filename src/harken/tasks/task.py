"""What a task must answer; everything around it (runs, reports, the command line) asks only this.

The payloads (recipe, examples, what was fitted) are the task's own types: a caller passes them back
unread.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import nn

from harken.batch.ragged import Numbers
from harken.decode.sampling import SampleKey
from harken.decode.seek import Found
from harken.encode.vocabulary import Vocabulary
from harken.errors import DataWarning, UserError
from harken.formats.examples import SpokenWord, TaggedToken
from harken.measure.honesty import Honesty
from harken.measure.interval import Estimate, Sample
from harken.measure.judged import Judged
from harken.training.loop import Stage


class Fitted(Protocol):
    """What was learnt of the data before any weight: a vocabulary, a list of tags."""

    def __len__(self) -> int:
        """How many units the model reads."""
        ...

    def to_json(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Trained:
    """A model with all that it needs to be asked."""

    recipe: Any
    fitted: Any
    model: nn.Module

    def __repr__(self) -> str:
        return f"Trained(task={self.recipe.task!r}, model={type(self.model).__name__})"

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device


@dataclass(frozen=True, kw_only=True, slots=True)
class Hypothesis:
    """One of several outputs, with its true log-probability."""

    output: str
    log_probability: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Truncation:
    """How much of an input the model read, where it is longer than the model's maximum length."""

    kept: int
    total: int
    part: str  # which part is kept, such as "first", "last" or "around the blank"
    unit: str = "tokens"

    def __str__(self) -> str:
        return f"input truncated to {self.kept:,} of {self.total:,} {self.unit} ({self.part})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """An output for an input, and the probability that the model gave to it."""

    input: str
    output: str
    confidence: float
    nbest: Sequence[Hypothesis] = ()  # where more than one was asked for, this one first
    words: Sequence[SpokenWord] = field(default=(), repr=False)  # of `predict_times`
    tokens: Sequence[TaggedToken] = field(default=(), repr=False)  # of the task `tag`
    truncation: Truncation | None = None  # None where the model read the whole input

    def __str__(self) -> str:
        return self.output


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows to look at, such as which tags are taken for which."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Evaluation:
    """Figures over n examples, the metric that decides first, and what was said to each.

    `predictions` and `expected` stand side by side; a task whose figures are not about outputs
    leaves both empty.
    """

    n: int
    samples: Mapping[str, Sample]  # what each figure is made of, so that runs can be compared
    notes: Mapping[str, str]  # what a reader must know to read a metric
    predictions: Sequence[Prediction] = ()
    expected: Sequence[str] = ()
    tables: Sequence[Table] = ()
    honesty: Honesty | None = None  # for a task that can tell what a model does not know
    metrics: Mapping[str, Estimate] = field(init=False)

    def __post_init__(self) -> None:
        figures = {name: sample.estimate() for name, sample in self.samples.items()}
        object.__setattr__(self, "metrics", figures)

    def __repr__(self) -> str:
        metrics = (f"{name}={estimate.value:.4g}" for name, estimate in self.metrics.items())
        return f"Evaluation(n={self.n}, {', '.join(metrics)})"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AudioView:
    """A sound that is looked at, in seconds: its frames, and the places that stand for them."""

    spectrogram: Float[np.ndarray, "S F"]
    frame_seconds: float  # from one frame to the next
    first_frame_seconds: float  # the middle of the first
    place_seconds: float
    first_place_seconds: float
    words: Sequence[SpokenWord] = ()  # as the model timed them


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageView:
    """A picture that is looked at; the places that stand for it come row by row."""

    image: UInt8[np.ndarray, "Y X K"] | None  # None where only a map of it is at hand
    columns: int  # of places
    rows: int
    offset: float  # the pixel at the centre of the first place, along both axes
    stride: float  # pixels from one place to the next


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionView:
    """Names of what looks and of what is looked at, for the attentions whose path matches."""

    title: str
    matches: Callable[[str], bool]  # of the attention's path in the model
    queries: Sequence[str]
    keys: Sequence[str]
    sound: AudioView | None = None  # where the keys are places of it
    picture: ImageView | None = None  # likewise


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionExample:
    """One input as a model meets it; `run` makes it look, up to what decides the output's end."""

    title: str
    run: Callable[[], object]
    views: Sequence[AttentionView]
    truncation: Truncation | None = None  # None where the views show the whole input


def truncation_of(kept: int, total: int, part: str, unit: str = "tokens") -> Truncation | None:
    """The truncation of an input; None where everything is kept."""
    return Truncation(kept=kept, total=total, part=part, unit=unit) if kept < total else None


def warn_unfit(count: int, total: int, what: str, done: str = "left out of training") -> None:
    """Warn that some training examples are too long, or too short, for the model."""
    if count:
        message = f"{count:,} of {total:,} {what} do not fit the model and are {done}"
        warnings.warn(message, DataWarning, stacklevel=3)


Indices = Sequence[int] | None
"""Those of inputs in a longer list of which they are a part; None for 0, 1, 2, …"""


class Prompt(NamedTuple):
    """The tokens that a model continues, and how much of the input they leave out."""

    tokens: Numbers
    truncation: Truncation | None


def keys_of(inputs: Sequence[str], indices: Indices) -> list[SampleKey]:
    """What a sample of each input depends on beside the seed."""
    return [(index,) for index in (range(len(inputs)) if indices is None else indices)]


def everywhere(path: str) -> bool:
    """For a view of all attentions of a model."""
    return True


class Task(Protocol):
    """One task, from files to figures."""

    def read(self, recipe: Any) -> Mapping[str, Any]:
        """Examples by split: `train`, `dev` and, where given, `test`."""
        ...

    def read_files(self, recipe: Any, paths: Sequence[Path]) -> Any:
        """Examples of other files: one of `evaluate --data`, two of `--source` and `--target`."""
        ...

    def fit(self, recipe: Any, splits: Mapping[str, Any]) -> Fitted: ...

    def restore(self, path: Path) -> Fitted:
        """What `fit` made, from the file that holds its `to_json`."""
        ...

    def build(self, recipe: Any, fitted: Any) -> nn.Module: ...

    def stages(
        self, recipe: Any, splits: Mapping[str, Any], fitted: Any, cache: Path
    ) -> list[Stage]:
        """The stages of training; what is worth keeping between resumptions goes to `cache`."""
        ...

    def evaluate(self, trained: Trained, examples: Any) -> Evaluation: ...

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        """One for each input, in order, as they are ready; samples depend on seed and index."""
        ...

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample | None:
        """An example worth looking into; None where there is nothing to look at."""
        ...


@runtime_checkable
class Judging(Protocol):
    """What a task whose outputs are right or wrong as a whole can do besides; ask `isinstance`."""

    def judged(self, trained: Trained) -> Judged:
        """The outputs for the dev split, from which it can be learnt when to keep silent."""
        ...


@runtime_checkable
class OfFiles(Protocol):
    """A task whose inputs are names of files, not lines of text; ask `isinstance`."""

    files: str  # what they hold, such as sounds


@runtime_checkable
class Timing(Protocol):
    """What a task whose inputs have a length in seconds can do besides; ask `isinstance`."""

    def predict_times(
        self, trained: Trained, inputs: Sequence[str], indices: Indices = None
    ) -> Iterator[Prediction]:
        """Predictions for files, with the seconds of every word."""
        ...


@runtime_checkable
class Looking(Protocol):
    """What a task can do besides that shows what it looks at for any input; ask `isinstance`."""

    def look(self, trained: Trained, asked: str) -> AttentionExample | None:
        """An input of `predict` as the model meets it, with its own output.

        None for an input without tokens and for a model without attention.
        """
        ...

    def inputs(self, trained: Trained, count: int) -> list[str]:
        """Inputs of the dev split that `look` takes, at most so many."""
        ...


@runtime_checkable
class Conditioned(Protocol):
    """What a task can do besides whose examples can be made harder; ask `isinstance`."""

    def evaluate_under(self, trained: Trained, examples: Any, condition: str) -> Evaluation:
        """Figures under a condition, such as noise:10."""
        ...


def units_of(evaluation: Evaluation, metric: str) -> int:
    """What a metric is an average over: words of sentences, for example."""
    own = evaluation.metrics[metric].n
    return evaluation.n if own is None else own


def one_of(outcomes: Sequence[bool]) -> int:
    """The first true one, else the first: a wrong answer's attention explains less."""
    return next((at for at, fine in enumerate(outcomes) if fine), 0)


def single(paths: Sequence[Path], what: str) -> Path:
    """Return the one file that a task takes."""
    if len(paths) != 1:
        raise UserError(
            f"expected one file of {what}, got {len(paths)}",
            fix="evaluate on one file at a time (command line: --data FILE)",
        )
    return paths[0]


def prediction_of(
    asked: str,
    found: Sequence[Found],
    vocabulary: Vocabulary,
    nbest: int,
    truncation: Truncation | None = None,
) -> Prediction:
    """What a search found for an input, as texts."""
    texts = [text.strip() for text in vocabulary.decode([one.tokens for one in found])]
    return Prediction(
        input=asked,
        output=texts[0],
        confidence=math.exp(found[0].log_probability),
        nbest=[
            Hypothesis(output=text, log_probability=one.log_probability)
            for text, one in zip(texts, found, strict=True)
        ]
        if nbest > 1
        else (),
        truncation=truncation,
    )
