"""Linear layers by oneDNN, compared with PyTorch's."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.masks import CAUSAL
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.layers import onednn
from harken.layers.losses import cross_entropy_
from harken.layers.onednn import (
    MIN_MULTIPLICATIONS,
    multiply_transposed,
    onednn_linears,
)


class Layers(nn.Module):
    """Linear layers whose gradients are transposed or expanded views."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(257, 131), nn.Linear(131, 263, bias=False)
        self.frozen = nn.Linear(263, 127)
        self.frozen.weight.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.second(self.first(inputs).relu().transpose(0, 1)).transpose(0, 1)
        return self.frozen(hidden).sum()


def gradients(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    inputs = inputs.clone().requires_grad_()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    output = model(inputs)
    return [output.detach(), *torch.autograd.grad(output, [inputs, *weights])]


@pytest.mark.parametrize(("capability", "products"), [("AVX2", 6), ("AVX512", 8)])
def test_gradients_are_those_of_float64(
    capability: str, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, inputs = Layers(), torch.randn(31, 37, 257)
    exact = gradients(copy.deepcopy(model).double(), inputs.double())
    theirs = gradients(model, inputs)
    monkeypatch.setattr(onednn, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    calls, multiply = [], onednn._multiply

    def counted(*arguments: object) -> Tensor:
        calls.append(arguments)
        return multiply(*arguments)

    monkeypatch.setattr(onednn, "_multiply", counted)
    with onednn_linears(model):
        ours = gradients(model, inputs)
        repeated = gradients(model, inputs)
    # Outputs and gradients of the inputs of three layers; with AVX-512, also of two weights.
    assert len(calls) == 2 * products
    for our, their, true, again in zip(ours, theirs, exact, repeated, strict=True):
        scale = true.abs().max()
        rounding = (their.double() - true).abs().max() / scale
        assert (our.double() - true).abs().max() / scale <= 2 * rounding + 1e-6
        assert torch.equal(our, again)


def test_logits_may_be_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cross_entropy_` overwrites its input, here a view of the output of a layer."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(257, 263), torch.randn(17, 31, 257)
    targets = torch.randint(263, (17 * 31,))
    nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets, reduction="sum").backward()
    expected, model.weight.grad = model.weight.grad, None
    monkeypatch.setattr(onednn, "mkl_is_slow", lambda: True)
    with onednn_linears(model):
        cross_entropy_(model(inputs).flatten(0, 1), targets).sum().backward()
    assert_close(model.weight.grad, expected, rtol=1e-4, atol=1e-4)


def test_unchanged_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products, autocast, other types and calls outside the block use PyTorch."""
    rows = MIN_MULTIPLICATIONS // (128 * 128)
    model = nn.Linear(128, 128)
    monkeypatch.setattr(onednn, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(onednn, "_multiply", None)
    with onednn_linears(model):
        expected = nn.functional.linear(torch.ones(rows - 1, 128), model.weight, model.bias)
        assert torch.equal(model(torch.ones(rows - 1, 128)), expected)
        with torch.autocast("cpu", torch.bfloat16):
            assert model(torch.ones(rows, 128)).dtype == torch.bfloat16
        with pytest.raises(TypeError):
            model(torch.ones(rows, 128))
    assert model(torch.ones(rows, 128)).shape == (rows, 128)
    assert "forward" not in vars(model)
    double = nn.Linear(128, 128).double()
    with onednn_linears(double):
        assert "forward" not in vars(double)


@pytest.mark.parametrize("sizes", [(31, 5, 7), (31, 7, 5), (31, 7, 7)])
def test_product_with_a_transposed_factor(
    sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    torch.manual_seed(0)
    rows, outputs, inputs = sizes
    left, right = torch.randn(rows, outputs), torch.randn(rows, inputs)
    assert_close(multiply_transposed(left, right), left.T @ right)


def test_queries_keys_and_values_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = MultiHeadConfig(heads=4, kv_heads=2, bias=True)
    model, inputs = config.build(256, 101), torch.randn(5, 101, 256)
    context = AttentionContext(
        mask=CAUSAL, query_positions=torch.arange(101)[None], key_positions=torch.arange(101)[None]
    )
    expected = gradients_of(model, inputs, context)
    monkeypatch.setattr(onednn, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(onednn, "MIN_MULTIPLICATIONS", 1)
    calls, multiply = [], onednn._multiply
    monkeypatch.setattr(onednn, "_multiply", lambda *args: calls.append(args) or multiply(*args))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with onednn_linears(model):
        results = gradients_of(model, inputs, context)
    assert len(calls) == 2 * 2  # outputs and gradients of the inputs: joint and output projection
    for result, value in zip(results, expected, strict=True):
        assert_close(result, value, rtol=1e-4, atol=1e-4)
    assert model.qkv_proj is None


def gradients_of(model: nn.Module, inputs: Tensor, context: AttentionContext) -> list[Tensor]:
    inputs = inputs.clone().requires_grad_()
    output, _ = model(inputs, context)
    return [output, *torch.autograd.grad(output.square().mean(), [inputs, *model.parameters()])]
