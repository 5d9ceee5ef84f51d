"""From which length on one kind of model is the cheaper: RNN, CNN and Transformer side by side.

All three have the same width, layers and vocabulary, and are walked like any other model. Lengths
are sought among 1 .. LONGEST; a kind that is cheaper at every length, or at none, says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.cost.expression import Expression
from harken.cost.machine import Machine
from harken.cost.predict import operations_seconds
from harken.cost.tape import Tape
from harken.cost.walk import cost_of, follow
from harken.layers.convolution import CausalConvolutionConfig
from harken.layers.recurrent import LSTMConfig
from harken.models.fixed_state import (
    ConvolutionalModelConfig,
    LanguageModelConfig,
    RecurrentModelConfig,
)
from harken.models.language_model import GPTConfig

LONGEST = 1 << 17
BATCH = 8192  # tokens of a step that is timed


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakEven:
    """The first length at which `one` needs less than `other`; None where it never does."""

    measure: str  # operations, depth or time
    one: str
    other: str
    length: int | None


def trio(width: int, layers: int, vocabulary: int) -> dict[str, nn.Module]:
    """The three kinds as language models."""
    configs: dict[str, LanguageModelConfig] = {
        "RNN": RecurrentModelConfig(width=width, recurrence=LSTMConfig(layers=layers)),
        "CNN": ConvolutionalModelConfig(
            width=width, convolutions=CausalConvolutionConfig(layers=layers)
        ),
        "Transformer": GPTConfig(
            width=width,
            layers=layers,
            position=NoPositionConfig(),
            attention=MultiHeadConfig(heads=1),
        ),
    }
    with torch.device("meta"):
        return {name: one.build(vocabulary, 0) for name, one in configs.items()}


def first_length(less: Callable[[int], bool]) -> int | None:
    """The first length where something holds that, once it holds, goes on to hold."""
    if not less(LONGEST):
        return None
    low, high = 0, LONGEST  # it does not hold at low, it does at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if less(middle) else (middle, high)
    return high


def break_evens(
    width: int, layers: int, vocabulary: int, machine: Machine | None = None
) -> list[BreakEven]:
    """By operations of the forward pass, by depth and, of a machine, by the time of a step."""
    models = trio(width, layers, vocabulary)
    costs = {name: cost_of(one) for name, one in models.items()}
    needs: dict[str, Callable[[str, int], float]] = {
        "operations": lambda name, length: of_row(costs[name].forward, length),
        "depth": lambda name, length: of_row(costs[name].depth, length),
    }
    if machine is not None:
        tapes = {name: followed(one) for name, one in models.items()}
        needs["time"] = lambda name, length: step_seconds(tapes[name], length, machine)
    return [
        seek(measure, one, other, needed)
        for measure, needed in needs.items()
        for one, other in (DEPTH_PAIRS if measure == "depth" else PAIRS)
    ]


PAIRS = (("RNN", "Transformer"), ("CNN", "Transformer"), ("CNN", "RNN"))
DEPTH_PAIRS = (("Transformer", "RNN"), *PAIRS[1:])  # the one that wins with length comes first


def seek(measure: str, one: str, other: str, needed: Callable[[str, int], float]) -> BreakEven:
    """Between two kinds, by what each needs for a length."""
    length = first_length(lambda tokens: needed(one, tokens) < needed(other, tokens))
    return BreakEven(measure=measure, one=one, other=other, length=length)


def of_row(formula: Expression, length: int) -> float:
    """For one row."""
    return float(formula.value({"B": 1, "T": length}))


def followed(model: nn.Module) -> Tape:
    """The tape of a model."""
    tape = Tape()
    follow(tape, model)
    return tape


def step_seconds(tape: Tape, length: int, machine: Machine) -> float:
    """A training step over as many rows as make a batch; the optimisers are much alike."""
    sizes = {"B": max(1, BATCH // length), "T": length}
    return sum(operations_seconds(tape, sizes, machine).values())
