"""Find the length from which one kind of language model costs less than another.

The RNN (an LSTM), the CNN and the Transformer have the same width, layers and vocabulary. The
operations and the depth (longest chain of dependent operations) of the forward pass are formulas in
T. The time of forward and backward pass is predicted at `TIMED_LENGTHS`; between and beyond them it
is interpolated and extrapolated on log-log axes.
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
from harken.tasks.lm import random_lm_batch

MAX_LENGTH = 1 << 17
LENGTHS = (4, 8, 16, 32)  # traced lengths; the last one only checks the formulas
TOKENS = 2048  # per batch whose time is predicted
TIMED_LENGTHS = (16, 128, 1024)


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakEven:
    """The first length at which `kind` costs less than `baseline`; None if above `MAX_LENGTH`."""

    measure: str  # operations, depth or time
    kind: str
    baseline: str
    length: int | None


# (kind, baseline), where `kind` is expected to cost less in long texts
PAIRS = (("RNN", "Transformer"), ("CNN", "Transformer"), ("CNN", "RNN"))
DEPTH_PAIRS = (("Transformer", "RNN"), *PAIRS[1:])

MeasureFunction = Callable[[str, int], float]  # (kind of model, length) -> cost


def compare_costs(width: int, layers: int, vocabulary: int, *, timed: bool) -> list[BreakEven]:
    """Compare operations and depth and, if `timed`, the time of forward and backward pass."""
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
        find_break_even(measure, kind, baseline, function)
        for measure, function in measures.items()
        for kind, baseline in (DEPTH_PAIRS if measure == "depth" else PAIRS)
    ]


def find_break_even(measure: str, kind: str, baseline: str, function: MeasureFunction) -> BreakEven:
    """Find the first length by bisection, assuming that `kind` costs less from there on."""

    def is_less(length: int) -> bool:
        return function(kind, length) < function(baseline, length)

    length = 1 + bisect_left(range(1, MAX_LENGTH + 1), True, key=is_less)
    first = length if length <= MAX_LENGTH else None
    return BreakEven(measure=measure, kind=kind, baseline=baseline, length=first)


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
        batch = random_lm_batch(1, length, vocabulary)
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
        kernels, batch = KernelCounter(), random_lm_batch(TOKENS // length, length, vocabulary)
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
    (left, left_value), (right, right_value) = next(
        (segment for segment in segments if length <= segment[1][0]), segments[-1]
    )
    slope = math.log(right_value / left_value) / math.log(right / left)
    return left_value * math.exp(slope * math.log(length / left))
