"""From which length on one kind of model is the cheaper: RNN, CNN and Transformer side by side.

All three have the same width, layers and vocabulary, and are walked like any other model. Lengths
are sought among 1 .. LONGEST; a kind that is cheaper at every length, or at none, says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import NoPositionConfig
from harken.cost.walk import Cost, cost_of
from harken.layers.convolution import CausalConvolutionConfig
from harken.layers.recurrent import LSTMConfig
from harken.models.fixed_state import (
    ConvolutionalModelConfig,
    LanguageModelConfig,
    RecurrentModelConfig,
)
from harken.models.language_model import GPTConfig

LONGEST = 1 << 17


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakEven:
    """The first length at which `one` needs less than `other`; None where it never does."""

    measure: str  # operations or depth
    one: str
    other: str
    length: int | None


def trio(width: int, layers: int, vocabulary: int) -> dict[str, Cost]:
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
        return {name: cost_of(one.build(vocabulary, 0)) for name, one in configs.items()}


def first_length(less: Callable[[int], bool]) -> int | None:
    """The first length where something holds that, once it holds, goes on to hold."""
    if not less(LONGEST):
        return None
    low, high = 0, LONGEST  # it does not hold at low, it does at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if less(middle) else (middle, high)
    return high


def break_evens(width: int, layers: int, vocabulary: int) -> list[BreakEven]:
    """By operations of the forward pass and by depth."""
    costs = trio(width, layers, vocabulary)
    found = []
    for measure in ("forward", "depth"):
        for one, other in (("RNN", "Transformer"), ("CNN", "Transformer"), ("CNN", "RNN")):
            if measure == "depth" and one == "RNN":
                one, other = other, one

            def less(length: int, one: str = one, other: str = other, name: str = measure) -> bool:
                sizes = {"B": 1, "T": length}
                left, right = (getattr(costs[kind], name) for kind in (one, other))
                return bool(left.value(sizes) < right.value(sizes))

            found.append(
                BreakEven(
                    measure="operations" if measure == "forward" else measure,
                    one=one,
                    other=other,
                    length=first_length(less),
                )
            )
    return found
