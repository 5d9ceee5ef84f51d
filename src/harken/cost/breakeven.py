"""The length from which one kind of language model is cheaper than another: LSTM, CNN, Transformer.

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
from harken.cost.formula import LOGARITHMS, POWERS, Axis, Formula, fit_formulas
from harken.cost.step import CPU, ForwardCost, trace_forward, trace_step
from harken.cost.time import KernelCounter
from harken.layers.convolution import CausalConvolutionConfig
from harken.layers.recurrent import LSTMConfig
from harken.models.gpt import GPTConfig
from harken.models.recurrent_lm import ConvLMConfig, LanguageModelConfig, RecurrentLMConfig
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
"""The cost of a kind of model for rows of some length."""


def break_evens(width: int, layers: int, vocabulary: int, *, timed: bool) -> list[BreakEven]:
    """Compare operations and depth of the forward pass of one row and, if `timed`, the time."""
    kinds = model_configs(width, layers)
    formulas = {kind: row_formulas(config, vocabulary) for kind, config in kinds.items()}
    needs: dict[str, Needs] = {
        "operations": lambda kind, length: float(formulas[kind][0].value({"T": length})),
        "depth": lambda kind, length: float(formulas[kind][1].value({"T": length})),
    }
    if timed:
        tables = {kind: seconds_per_token(config, vocabulary) for kind, config in kinds.items()}
        needs["time"] = lambda kind, length: interpolated(tables[kind], length)
    return [
        break_even(measure, winner, loser, need)
        for measure, need in needs.items()
        for winner, loser in (DEPTH_PAIRS if measure == "depth" else PAIRS)
    ]


def break_even(measure: str, winner: str, loser: str, need: Needs) -> BreakEven:
    """Find the first length at which one kind needs less, assuming it does for longer rows too."""

    def is_less(length: int) -> bool:
        return need(winner, length) < need(loser, length)

    low, high = 0, MAX_LENGTH
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_less(middle) else (middle, high)
    length = high if is_less(high) else None
    return BreakEven(measure=measure, one=winner, other=loser, length=length)


def model_configs(width: int, layers: int) -> dict[str, LanguageModelConfig]:
    """Return the three kinds."""
    convolutions = CausalConvolutionConfig(layers=layers)
    return {
        "RNN": RecurrentLMConfig(width=width, cell=LSTMConfig(layers=layers)),
        "CNN": ConvLMConfig(width=width, convolutions=convolutions),
        "Transformer": GPTConfig(
            width=width,
            layers=layers,
            max_length=MAX_LENGTH,
            position=NoPositionConfig(),
            attention=MultiHeadConfig(heads=1),
        ),
    }


def row_formulas(config: LanguageModelConfig, vocabulary: int) -> tuple[Formula, Formula]:
    """Return operations and depth of the forward pass of one row of T tokens."""

    @cache
    def trace(length: int) -> ForwardCost:
        batch = random_text(1, length, vocabulary)
        return trace_forward(
            lambda _: config.build(vocabulary, 0), lambda model: batch.loss(model, CPU)
        )

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        return trace(sizes["T"])._asdict()

    operations = fit_formulas(count, [Axis("T", LENGTHS, POWERS)], ["forward"])["forward"]
    depth = fit_formulas(count, [Axis("T", LENGTHS, LOGARITHMS)], ["depth"])["depth"]
    assert operations is not None and depth is not None
    return operations, depth


def seconds_per_token(config: LanguageModelConfig, vocabulary: int) -> list[tuple[int, float]]:
    """Return predicted seconds per token of forward and backward pass, by length of the rows."""

    def seconds(length: int) -> float:
        kernels, batch = KernelCounter(), random_text(TOKENS // length, length, vocabulary)
        trace_step(
            lambda _: config.build(vocabulary, 0),
            lambda model: batch.loss(model, CPU),
            observers=[kernels],
        )
        return kernels.seconds() / TOKENS

    return [(length, seconds(length)) for length in TIMED]


def interpolated(table: Sequence[tuple[int, float]], length: int) -> float:
    """Interpolate linearly on logarithmic axes; the outer segments are continued."""
    segments = list(pairwise(table))
    (left, first), (right, second) = next(
        (segment for segment in segments if length <= segment[1][0]), segments[-1]
    )
    slope = math.log(second / first) / math.log(right / left)
    return first * math.exp(slope * math.log(length / left))
