import math

import pytest
import torch
from torch import Tensor

from harken.layers.feedforward import FeedForward, FeedForwardConfig
from small_layers import randomized


def built(activation: str, expansion: float = 2.2) -> FeedForward:
    return randomized(FeedForwardConfig(activation=activation, expansion=expansion).build(5), 1.0)


def affine(layer: torch.nn.Linear, inputs: list[float]) -> list[float]:
    rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
    return [math.fsum(w * x for w, x in zip(row, inputs, strict=True)) + b for row, b in rows]


def silu(number: float) -> float:
    return number / (1 + math.exp(-number))


FORMULAS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": silu,
}


def expected(layer: FeedForward, inputs: list[float]) -> list[float]:
    wide = affine(layer.up_proj, inputs)
    if layer.gate_proj is not None:
        pairs = zip(wide, affine(layer.gate_proj, inputs), strict=True)
        return affine(layer.down_proj, [silu(hidden) * gate for hidden, gate in pairs])
    return affine(layer.down_proj, [FORMULAS[layer.activation](number) for number in wide])


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "swiglu"])
def test_each_token_on_its_own_by_the_formula(activation: str) -> None:
    layer, inputs = built(activation), torch.randn(2, 3, 5, dtype=torch.float64)
    ours: Tensor = layer(inputs)
    for b in range(2):
        for t in range(3):
            wanted = expected(layer, inputs[b, t].tolist())
            assert ours[b, t].tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("expansion", "inner"), [(4.0, 20), (2.2, 11), (8 / 3, 13), (0.3, 2)])
def test_the_inner_width_is_rounded(expansion: float, inner: int) -> None:
    assert built("swiglu", expansion).up_proj.out_features == inner
