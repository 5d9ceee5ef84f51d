"""Catch the attention weights of every layer and head while a model runs.

    with record(model) as seen:
        model(tokens)
    seen[0].weights     # B k T S of the first attention that ran

The recorder swaps each attention's fast kernel for the explicit one, which takes the same
arguments, and puts it back. Models contain no code for it. Weights are those that mixed the values;
in training with dropout of attention, those before it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.attend import Compared, Kernel, attend_explicit
from harken.attention.masks import Mask
from harken.attention.multihead import MultiHead


@dataclass(frozen=True, slots=True)
class Recorded:
    """Weights of one call of one attention; `name` is its path in the model."""

    name: str
    weights: Float[Tensor, "B k T S"]


@contextmanager
def record(model: nn.Module) -> Iterator[list[Recorded]]:
    """Record every attention of the model for the length of the block."""
    seen: list[Recorded] = []
    attentions = {
        name: module for name, module in model.named_modules() if isinstance(module, MultiHead)
    }
    kernels = {name: module.kernel for name, module in attentions.items()}
    try:
        for name, module in attentions.items():
            module.kernel = _recording(name, seen)
        yield seen
    finally:
        for name, module in attentions.items():
            module.kernel = kernels[name]


def _recording(name: str, seen: list[Recorded]) -> Kernel:
    def attend(compared: Compared, values: Tensor, mask: Mask, dropout: float) -> Tensor:
        attended = attend_explicit(compared, values, mask, dropout)
        seen.append(Recorded(name, attended.weights.detach()))
        return attended.output

    return attend
