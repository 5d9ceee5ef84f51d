"""Predictions and evaluations, in the same form for all tasks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harken.decode.stepper import TokenHypothesis
from harken.encode.vocabulary import Vocabulary
from harken.formats.examples import SpokenWord, TaggedToken
from harken.measure.honesty import Honesty
from harken.measure.interval import Estimate, Sample
from harken.measure.scored_answers import exact_matches
from harken.notebook import NotebookOutput


@dataclass(frozen=True, slots=True)
class RankedOutput:
    """An output in an n-best list, with its log-probability."""

    output: str
    log_probability: float


@dataclass(frozen=True, slots=True)
class LabelProbability:
    """A label of the task `classify` and its probability."""

    label: str
    probability: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Truncation:
    """How much of an input the model read, if it is longer than the model's maximum length."""

    kept: int
    total: int
    part: str  # such as "first", "last" or "around the blank"
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
    # All labels of the task `classify`, the most probable first.
    labels: Sequence[LabelProbability] = field(default=(), repr=False)
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
class Evaluation(NotebookOutput):
    """Metrics over n examples, the main metric first, with the prediction for each example."""

    n: int
    samples: Mapping[str, Sample]  # per-example counts of each metric, to compare runs
    notes: Mapping[str, str] = field(default_factory=dict)  # explanations of metrics
    predictions: Sequence[Prediction] = ()  # empty if no outputs are scored, as for perplexity
    expected: Sequence[str] = ()
    tables: Sequence[Table] = ()
    honesty: Honesty | None = None  # confidence on unknown entities (task `answer`)
    example: str | None = None  # input whose attention is shown; default: `first_correct`
    metrics: Mapping[str, Estimate] = field(init=False)

    def __post_init__(self) -> None:
        metrics = {name: sample.estimate() for name, sample in self.samples.items()}
        object.__setattr__(self, "metrics", metrics)
        if self.example is None and self.predictions:
            object.__setattr__(self, "example", first_correct(self.predictions, self.expected))

    def __repr__(self) -> str:
        metrics = (f"{name}={estimate.value:.4g}" for name, estimate in self.metrics.items())
        return f"Evaluation(n={self.n}, {', '.join(metrics)})"

    def count(self, metric: str) -> int:
        """Return how many items a metric averages over, such as the words of all sentences."""
        count = self.metrics[metric].n
        return self.n if count is None else count


def first_correct(predictions: Sequence[Prediction], expected: Sequence[str]) -> str:
    """Return the input of the first correct output, or else of the first non-empty output."""
    outputs = [prediction.output for prediction in predictions]
    correct = exact_matches(outputs, expected)
    ranks = [
        (not prediction.output, not is_correct)
        for prediction, is_correct in zip(predictions, correct, strict=True)
    ]
    return predictions[ranks.index(min(ranks))].input


def truncation_of(kept: int, total: int, part: str, unit: str = "tokens") -> Truncation | None:
    """Return the truncation of an input; None if all of it is kept."""
    return Truncation(kept=kept, total=total, part=part, unit=unit) if kept < total else None


def beam_prediction(
    text: str,
    beam: Sequence[TokenHypothesis],
    vocabulary: Vocabulary,
    nbest: int = 1,
    truncation: Truncation | None = None,
) -> Prediction:
    """Decode the hypotheses of a search, the best first."""
    outputs = vocabulary.decode([hypothesis.tokens for hypothesis in beam])
    log_probs = [hypothesis.log_probability for hypothesis in beam]
    outputs = [output.strip() for output in outputs]
    return ranked_prediction(text, outputs, log_probs, nbest, truncation)


def ranked_prediction(
    text: str,
    outputs: Sequence[str],
    log_probabilities: Sequence[float],
    nbest: int = 1,
    truncation: Truncation | None = None,
) -> Prediction:
    """Return the prediction of the first output; if `nbest` > 1, it lists all outputs."""
    confidence = math.exp(log_probabilities[0])
    ranked = list(map(RankedOutput, outputs, log_probabilities)) if nbest > 1 else ()
    return Prediction(
        input=text, output=outputs[0], confidence=confidence, nbest=ranked, truncation=truncation
    )
