import math

import pytest
import torch
from torch import Tensor

from harken.layers.feedforward import FeedForward, FeedForwardConfig


def built(activation: str, expansion: float = 2.2) -> FeedForward:
    layer = FeedForwardConfig(activation=activation, expansion=expansion).build(5).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def affine(layer: torch.nn.Linear, inputs: list[float]) -> list[float]:
    rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
    return [math.fsum(w * x for w, x in zip(row, inputs, strict=True)) + b for row, b in rows]


def relu(number: float) -> float:
    return max(0.0, number)


def tanh_gelu(number: float) -> float:
    inner = math.sqrt(2 / math.pi) * (number + 0.044715 * number**3)
    return 0.5 * number * (1 + math.tanh(inner))


def exact_gelu(number: float) -> float:
    return 0.5 * number * (1 + math.erf(number / math.sqrt(2)))


def silu(number: float) -> float:
    return number / (1 + math.exp(-number))


def expected(layer: FeedForward, inputs: list[float]) -> list[float]:
    wide = affine(layer.up_proj, inputs)
    if layer.gate_proj is not None:
        pairs = zip(wide, affine(layer.gate_proj, inputs), strict=True)
        return affine(layer.down_proj, [silu(hidden) * gate for hidden, gate in pairs])
    bends = {"relu": relu, "gelu": exact_gelu, "gelu_tanh": tanh_gelu, "silu": silu}
    bend = bends[layer.activation]
    return affine(layer.down_proj, [bend(number) for number in wide])


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
