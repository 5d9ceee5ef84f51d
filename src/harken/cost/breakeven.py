"""From which length on one kind of language model is cheaper than another: LSTM, CNN, Transformer.

The three models have the same width, layers and vocabulary. Operations and depth are formulas in T;
the time of a training step is interpolated between a few lengths on logarithmic axes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.cost.exercise import CPU
from harken.cost.formula import LOGARITHMS, POWERS, Axis, Formula, fit
from harken.cost.step import ForwardCost, trace_forward, trace_step
from harken.cost.time import Kernels
from harken.cost.trace import Observer
from harken.layers.convolution import CausalConvolutionConfig
from harken.layers.recurrent import LSTMConfig
from harken.models.gpt import GPTConfig
from harken.models.recurrent_lm import (
    ConvLMConfig,
    LanguageModelConfig,
    RecurrentLMConfig,
)
from harken.tasks.lm import random_text

MAX_LENGTH = 1 << 17
LENGTHS = (4, 8, 16, 32)  # that are traced, the last one for the check
TOKENS = 2048  # of a timed step
TIMED = (16, 128, 1024)  # lengths of its rows


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakEven:
    """The first length at which `one` needs less than `other`; None if it never does."""

    measure: str  # operations, depth or time
    one: str
    other: str
    length: int | None


PAIRS = (("RNN", "Transformer"), ("CNN", "Transformer"), ("CNN", "RNN"))
DEPTH_PAIRS = (("Transformer", "RNN"), *PAIRS[1:])  # the model that wins on long rows first

Needs = Callable[[str, int], float]
"""What a kind of model needs for rows of some length."""


def break_evens(width: int, layers: int, vocabulary: int, *, timed: bool) -> list[BreakEven]:
    """By operations of the forward pass and depth for one row and, if asked for, by time."""
    kinds = model_configs(width, layers)
    formulas = {kind: row_formulas(config, vocabulary) for kind, config in kinds.items()}
    needs: dict[str, Needs] = {
        "operations": lambda kind, length: float(formulas[kind][0].value({"T": length})),
        "depth": lambda kind, length: float(formulas[kind][1].value({"T": length})),
    }
    if timed:
        tables = {kind: step_times(config, vocabulary) for kind, config in kinds.items()}
        needs["time"] = lambda kind, length: interpolated(tables[kind], length)
    return [
        compare(measure, one, other, need)
        for measure, need in needs.items()
        for one, other in (DEPTH_PAIRS if measure == "depth" else PAIRS)
    ]


def compare(measure: str, one: str, other: str, need: Needs) -> BreakEven:
    """Find the first length at which one kind needs less than the other."""
    length = first_length(lambda tokens: need(one, tokens) < need(other, tokens))
    return BreakEven(measure=measure, one=one, other=other, length=length)


def first_length(is_less: Callable[[int], bool]) -> int | None:
    """The first length at which a condition holds that holds for all longer rows as well."""
    if not is_less(MAX_LENGTH):
        return None
    low, high = 0, MAX_LENGTH
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_less(middle) else (middle, high)
    return high


def model_configs(width: int, layers: int) -> dict[str, LanguageModelConfig]:
    """The three kinds."""
    convolutions = CausalConvolutionConfig(layers=layers)
    return {
        "RNN": RecurrentLMConfig(width=width, recurrence=LSTMConfig(layers=layers)),
        "CNN": ConvLMConfig(width=width, convolutions=convolutions),
        "Transformer": GPTConfig(
            width=width,
            layers=layers,
            length=MAX_LENGTH,
            position=NoPositionConfig(),
            attention=MultiHeadConfig(heads=1),
        ),
    }


def row_formulas(config: LanguageModelConfig, vocabulary: int) -> tuple[Formula, Formula]:
    """Operations and depth of the forward pass of one row of T tokens."""

    @cache
    def trace(length: int) -> ForwardCost:
        batch = random_text(1, length, vocabulary)
        return trace_forward(
            lambda _: config.build(vocabulary, 0), lambda model: batch.loss(model, CPU)
        )

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        return trace(sizes["T"])._asdict()

    operations = fit(count, [Axis("T", LENGTHS, POWERS)], ["forward"])["forward"]
    depth = fit(count, [Axis("T", LENGTHS, LOGARITHMS)], ["depth"])["depth"]
    assert operations is not None and depth is not None, "T enters these models in no other way"
    return operations, depth


def step_times(config: LanguageModelConfig, vocabulary: int) -> list[tuple[int, float]]:
    """Predicted seconds per token of forward and backward pass, by length of the rows."""
    return [(length, token_seconds(config, vocabulary, length)) for length in TIMED]


def token_seconds(config: LanguageModelConfig, vocabulary: int, length: int) -> float:
    """Seconds per token."""
    kernels = Kernels()
    observers: list[Observer] = [kernels]
    batch = random_text(TOKENS // length, length, vocabulary)
    trace_step(
        lambda _: config.build(vocabulary, 0),
        lambda model: batch.loss(model, CPU),
        observers=observers,
    )
    return kernels.seconds() / TOKENS


def interpolated(table: Sequence[tuple[int, float]], length: int) -> float:
    """A straight line on logarithmic axes between neighboring lengths, continued at both ends."""
    segments = list(pairwise(table))
    (left, first), (right, second) = next(
        (segment for segment in segments if length <= segment[1][0]), segments[-1]
    )
    slope = math.log(second / first) / math.log(right / left)
    return first * math.exp(slope * math.log(length / left))
