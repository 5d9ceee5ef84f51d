"""Find the length from which one kind of language model costs less than another.

LSTM, CNN and Transformer have the same width, layers and vocabulary. Operations and depth are
formulas in T; the time of a training step is interpolated between a few lengths on log-log axes.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.cost.formula import LOGARITHMS, POWERS, Axis, Factor, Formula, fit_formulas
from harken.cost.step import CPU, Cost, trace_forward, trace_step
from harken.cost.time import KernelCounter
from harken.layers.convolution import CausalConvolutionConfig
from harken.layers.recurrent import LSTMConfig
from harken.models.gpt import GPTConfig
from harken.models.recurrent_lm import ConvLMConfig, LanguageModelConfig, RecurrentLMConfig
from harken.tasks.lm import random_text

MAX_LENGTH = 1 << 17
LENGTHS = (4, 8, 16, 32)  # traced lengths; the last one checks the formulas
TOKENS = 2048  # per timed step
TIMED_LENGTHS = (16, 128, 1024)


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakEven:
    """The first length at which `one` needs less than `other`; None if it never does."""

    measure: str  # operations, depth or time
    one: str
    other: str
    length: int | None


PAIRS = (("RNN", "Transformer"), ("CNN", "Transformer"), ("CNN", "RNN"))
DEPTH_PAIRS = (("Transformer", "RNN"), *PAIRS[1:])  # (lower, higher) depth at long lengths

MeasureFunction = Callable[[str, int], float]  # of the kind of model and the length


def compare_costs(width: int, layers: int, vocabulary: int, *, timed: bool) -> list[BreakEven]:
    """Compare operations and depth of the forward pass and, if `timed`, the time of training."""
    configs = model_configs(width, layers)
    formulas = {kind: fit_costs(config, vocabulary) for kind, config in configs.items()}
    measures: dict[str, MeasureFunction] = {
        "operations": lambda kind, length: float(formulas[kind][0].value({"T": length})),
        "depth": lambda kind, length: float(formulas[kind][1].value({"T": length})),
    }
    if timed:
        tables = {kind: seconds_per_token(config, vocabulary) for kind, config in configs.items()}
        measures["time"] = lambda kind, length: interpolate_log(tables[kind], length)
    return [
        find_break_even(measure, winner, loser, function)
        for measure, function in measures.items()
        for winner, loser in (DEPTH_PAIRS if measure == "depth" else PAIRS)
    ]


def find_break_even(measure: str, winner: str, loser: str, function: MeasureFunction) -> BreakEven:
    """Find the first length at which `winner` costs less, assuming it does at all longer ones."""

    def is_less(length: int) -> bool:
        return function(winner, length) < function(loser, length)

    length = 1 + bisect_left(range(1, MAX_LENGTH + 1), True, key=is_less)
    first = length if length <= MAX_LENGTH else None
    return BreakEven(measure=measure, one=winner, other=loser, length=first)


def model_configs(width: int, layers: int) -> dict[str, LanguageModelConfig]:
    """Return the compared models by kind."""
    return {
        "RNN": RecurrentLMConfig(width=width, cell=LSTMConfig(layers=layers)),
        "CNN": ConvLMConfig(width=width, convolutions=CausalConvolutionConfig(layers=layers)),
        "Transformer": GPTConfig(
            width=width,
            layers=layers,
            max_length=MAX_LENGTH,
            position=NoPositionConfig(),
            attention=MultiHeadConfig(heads=1),
        ),
    }


def fit_costs(config: LanguageModelConfig, vocabulary: int) -> tuple[Formula, Formula]:
    """Return formulas for operations and depth of the forward pass of one sequence of T tokens."""

    @cache
    def trace(length: int) -> Cost:
        batch = random_text(1, length, vocabulary)
        return trace_forward(
            lambda _: config.build(vocabulary, 0), lambda model: batch.loss(model, CPU)
        )

    def fit(name: str, factors: Sequence[Factor]) -> Formula:
        axis = Axis("T", LENGTHS, factors)
        formula = fit_formulas(lambda sizes: asdict(trace(sizes["T"])), [axis], [name])[name]
        assert formula is not None
        return formula

    return fit("forward", POWERS), fit("depth", LOGARITHMS)


def seconds_per_token(config: LanguageModelConfig, vocabulary: int) -> list[tuple[int, float]]:
    """Return predicted seconds per token of forward and backward pass, by sequence length."""

    def seconds(length: int) -> float:
        kernels, batch = KernelCounter(), random_text(TOKENS // length, length, vocabulary)
        trace_step(
            lambda _: config.build(vocabulary, 0),
            lambda model: batch.loss(model, CPU),
            observers=[kernels],
        )
        return kernels.seconds() / TOKENS

    return [(length, seconds(length)) for length in TIMED_LENGTHS]


def interpolate_log(table: Sequence[tuple[int, float]], length: int) -> float:
    """Interpolate linearly on log-log axes; the outer segments also extrapolate."""
    segments = list(pairwise(table))
    (left, first), (right, second) = next(
        (segment for segment in segments if length <= segment[1][0]), segments[-1]
    )
    slope = math.log(second / first) / math.log(right / left)
    return first * math.exp(slope * math.log(length / left))
