"""What a task must answer; everything around it (runs, reports, the command line) asks only this.

The payloads (recipe, examples) are the task's own types: a caller passes them back unread.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from harken.encode.vocabulary import Vocabulary
from harken.measure.interval import Estimate
from harken.training.loop import Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """An output for an input, and the probability that the model gave to it."""

    input: str
    output: str
    confidence: float

    def __str__(self) -> str:
        return self.output


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Figures over n examples, the metric that decides first, and what was said to each."""

    n: int
    metrics: Mapping[str, Estimate]
    notes: Mapping[str, str]  # what a reader must know to read a metric
    predictions: Sequence[Prediction]
    expected: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Glimpse:
    """One input as a model meets it, up to the token that decides the end of the output."""

    title: str
    tokens: Sequence[int]
    pieces: Sequence[str]


class Task(Protocol):
    """One task, from files to figures."""

    def read(self, recipe: Any) -> Mapping[str, Any]:
        """Examples by split: `train`, `dev` and, where given, `test`."""
        ...

    def read_file(self, recipe: Any, path: Path) -> Any:
        """Examples of one more file, for `evaluate --data`."""
        ...

    def fit(self, recipe: Any, splits: Mapping[str, Any]) -> Vocabulary: ...

    def build(self, recipe: Any, vocabulary: Vocabulary) -> nn.Module: ...

    def stages(
        self, recipe: Any, splits: Mapping[str, Any], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage]:
        """The stages of training; what is worth keeping between resumptions goes to `cache`."""
        ...

    def evaluate(
        self, model: nn.Module, vocabulary: Vocabulary, splits: Mapping[str, Any], examples: Any
    ) -> Evaluation: ...

    def predict(
        self, model: nn.Module, vocabulary: Vocabulary, inputs: Sequence[str]
    ) -> Iterator[Prediction]:
        """One for each input, in order, as they are ready."""
        ...

    def glimpse(
        self, model: nn.Module, vocabulary: Vocabulary, prediction: Prediction
    ) -> Glimpse: ...


def device_of(model: nn.Module) -> torch.device:
    """Where the model's weights are."""
    return next(model.parameters()).device
