"""Records of predictions and evaluations, the same for all tasks."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harken.batch.ragged import Numbers
from harken.decode.sampling import SampleKey
from harken.decode.stepper import TokenHypothesis
from harken.encode.vocabulary import Vocabulary
from harken.errors import DataWarning
from harken.formats.examples import SpokenWord, TaggedToken
from harken.measure.honesty import Honesty
from harken.measure.interval import Estimate, Sample
from harken.measure.scored_answers import exact_matches


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedOutput:
    """One of several outputs, with its log-probability."""

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
    nbest: Sequence[RankedOutput] = ()  # if several were requested, the best first
    words: Sequence[SpokenWord] = field(default=(), repr=False)  # if word times were requested
    tokens: Sequence[TaggedToken] = field(default=(), repr=False)  # of the task `tag`
    truncation: Truncation | None = None  # None if the model read the whole input

    def __str__(self) -> str:
        return self.output


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows for the report, such as the most frequent confusions."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Evaluation:
    """Metrics over n examples, the one that decides first, with the prediction for each example.

    `predictions` and `expected` have the same length; both are empty for a task whose metrics are
    not about outputs.
    """

    n: int
    samples: Mapping[str, Sample]  # from which each metric is computed, for comparing runs
    notes: Mapping[str, str] = field(default_factory=dict)  # explanations of metrics
    predictions: Sequence[Prediction] = ()
    expected: Sequence[str] = ()
    tables: Sequence[Table] = ()
    honesty: Honesty | None = None  # for a task that measures what a model does not know
    example: str | None = None  # the input whose attention a report shows; chosen if None
    metrics: Mapping[str, Estimate] = field(init=False)

    def __post_init__(self) -> None:
        figures = {name: sample.estimate() for name, sample in self.samples.items()}
        object.__setattr__(self, "metrics", figures)
        if self.example is None and self.predictions:
            object.__setattr__(self, "example", first_correct(self.predictions, self.expected))

    def __repr__(self) -> str:
        metrics = (f"{name}={estimate.value:.4g}" for name, estimate in self.metrics.items())
        return f"Evaluation(n={self.n}, {', '.join(metrics)})"

    def units(self, metric: str) -> int:
        """The number of things that a metric is an average over, such as words of sentences."""
        own = self.metrics[metric].n
        return self.n if own is None else own


def first_correct(predictions: Sequence[Prediction], expected: Sequence[str]) -> str:
    """Return the input of the first correct output that is not empty, else of the first such."""
    pairs = [
        (prediction.input, prediction.output, text)
        for prediction, text in zip(predictions, expected, strict=True)
    ]
    pairs = [pair for pair in pairs if pair[1]] or pairs
    right = exact_matches([output for _, output, _ in pairs], [text for *_, text in pairs])
    return pairs[right.index(True) if any(right) else 0][0]


Indices = Sequence[int] | None
"""Indices of inputs in a longer list of which they are a part; None for 0, 1, 2, …"""


class Prompt(NamedTuple):
    """The tokens that a model continues, and how much of the input they leave out."""

    tokens: Numbers
    truncation: Truncation | None


def sample_keys(inputs: Sequence[str], indices: Indices = None) -> list[SampleKey]:
    """What a sample of each input depends on besides the seed."""
    return [(index,) for index in (range(len(inputs)) if indices is None else indices)]


def truncation_of(kept: int, total: int, part: str, unit: str = "tokens") -> Truncation | None:
    """The truncation of an input; None if everything is kept."""
    return Truncation(kept=kept, total=total, part=part, unit=unit) if kept < total else None


def warn_unfit(count: int, total: int, what: str, done: str = "left out of training") -> None:
    """Warn that some training examples are too long, or too short, for the model."""
    if count:
        message = f"{count:,} of {total:,} {what} do not fit the model and are {done}"
        warnings.warn(message, DataWarning, stacklevel=3)


def prediction_of(
    text: str,
    beam: Sequence[TokenHypothesis],
    vocabulary: Vocabulary,
    nbest: int = 1,
    truncation: Truncation | None = None,
) -> Prediction:
    """Return the prediction for an input, from the hypotheses of a search."""
    outputs = vocabulary.decode([hypothesis.tokens for hypothesis in beam])
    logs = [hypothesis.log_probability for hypothesis in beam]
    return ranked_prediction(text, [output.strip() for output in outputs], logs, nbest, truncation)


def ranked_prediction(
    text: str,
    outputs: Sequence[str],
    log_probabilities: Sequence[float],
    nbest: int,
    truncation: Truncation | None,
) -> Prediction:
    """The prediction for an input, from outputs with the best first."""
    ranked = [
        RankedOutput(output=output, log_probability=log_probability)
        for output, log_probability in zip(outputs, log_probabilities, strict=True)
    ]
    return Prediction(
        input=text,
        output=outputs[0],
        confidence=math.exp(log_probabilities[0]),
        nbest=ranked if nbest > 1 else (),
        truncation=truncation,
    )
