"""Run linear layers with oneDNN instead of MKL, on a CPU in float32.

`PackedLinear` is for inference: oneDNN stores each weight once in its blocked layout, which makes
products with few rows, as in decoding, up to three times faster than PyTorch's. `onednn_linears` is
for training, on a CPU that is not from Intel: large products take a sixth less time than in MKL
with AVX2, and half the time with AVX-512.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from harken.attention.multihead import MultiHead
from harken.inputs import is_file, open_input

MIN_ELEMENTS = 1 << 12  # of a weight; the call of oneDNN costs more than smaller products
TYPICAL_ROWS = 64  # oneDNN chooses the layout for this number of rows
MIN_MULTIPLICATIONS = 1 << 24  # of a product in training; MKL is faster for smaller ones
CPU_INFO = Path("/proc/cpuinfo")


ACTIVATIONS = {
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
    "swiglu": ("swish", ""),
}
"""Name and algorithm in oneDNN of the activations of a feed-forward layer."""


@contextmanager
def replaced(name: str, values: Iterable[tuple[nn.Module, Any]]) -> Iterator[None]:
    """Inside this block, the attribute `name` of each module has another value."""
    outer = list[tuple[nn.Module, dict[str, Any]]]()
    try:
        for module, value in values:
            outer.append((module, {name: vars(module)[name]} if name in vars(module) else {}))
            vars(module)[name] = value
        yield
    finally:
        for module, original in outer:
            vars(module).pop(name, None)
            vars(module).update(original)


@contextmanager
def onednn_linears(model: nn.Module) -> Iterator[None]:
    """Inside this block, compute large products of the linear layers of a model with oneDNN.

    Queries, keys and values of self-attention are one product. Outputs and gradients are those of
    `nn.Linear` up to rounding. It has no effect under autocast, and where MKL is fast.
    """
    if not mkl_is_slow():
        yield
        return
    linears = packable_linears(model)
    forwards = [
        (linear, partial(apply_linear, linear.forward, linear.weight, linear.bias))
        for linear in linears
    ]
    joint = [
        (layer, partial(apply_together, layer.projections()))
        for layer in joinable_layers(model, linears)
    ]
    with replaced("forward", forwards), replaced("qkv_proj", joint):
        yield


def packable_linears(model: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a model that oneDNN can compute."""
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear) and is_packable(module.weight)
    ]


def joinable_layers(model: nn.Module, linears: Collection[nn.Linear]) -> list[MultiHead]:
    """Return the self-attention layers whose projections are among `linears` and can be joined."""
    return [
        module
        for module in model.modules()
        if isinstance(module, MultiHead)
        and module.kind == "self"
        and module.can_join()
        and set(linears).issuperset(module.projections())
        and not any(has_hooks(linear) for linear in module.projections())
    ]


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has forward hooks, so that its call must not be skipped."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def is_packable(weight: Tensor) -> bool:
    """Whether oneDNN can multiply with this weight, and is likely to be faster."""
    return (
        type(weight) is nn.Parameter
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= MIN_ELEMENTS
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and not torch._C._len_torch_dispatch_stack()
    )


class PackedLinear:
    """Linear layers of the same inputs as one product with a packed copy of their weights.

    The outputs of the layers are concatenated. It computes no gradients.
    """

    def __init__(self, *layers: nn.Linear, activation: str | None = None) -> None:
        self._widths = [layer.out_features for layer in layers]
        with torch.no_grad():
            weight, self._bias = concatenated_weights(layers)
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)
        name, algorithm = ("none", "") if activation is None else ACTIVATIONS[activation]
        self._operation = name, algorithm

    def __call__(self, inputs: Float[Tensor, "*B inputs"]) -> Float[Tensor, "*B outputs"]:
        name, algorithm = self._operation
        output: Tensor = _multiply(inputs, self._weight, self._bias, name, [], algorithm)
        return output

    def outputs(self, inputs: Float[Tensor, "*B inputs"]) -> tuple[Tensor, ...]:
        """Return the output of each layer."""
        return torch.split(self(inputs), self._widths, dim=-1)

    def add(
        self, inputs: Float[Tensor, "*B inputs"], residual: Float[Tensor, "*B outputs"]
    ) -> Float[Tensor, "*B outputs"]:
        """Return the output plus `residual`, without an activation."""
        output: Tensor = _multiply_and_add(inputs, residual, self._weight, self._bias, "add")
        return output


_multiply = torch.ops.mkldnn._linear_pointwise.default
_multiply_and_add = torch.ops.mkldnn._linear_pointwise.binary


@cache
def mkl_is_slow() -> bool:
    """Whether PyTorch multiplies with MKL on a CPU of another vendor than Intel.

    MKL uses its fastest kernels only on CPUs from Intel, where oneDNN has not been measured.
    """
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    if is_file(CPU_INFO):  # Linux
        with open_input(CPU_INFO) as file:
            return b"GenuineIntel" not in file.read(4096)
    processor = os.environ.get("PROCESSOR_IDENTIFIER", "")  # Windows
    return "AMD" in processor.rpartition(",")[2]


def apply_linear(
    forward: Callable[[Tensor], Tensor],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, "outputs"] | None,
    inputs: Float[Tensor, "*B inputs"],
) -> Float[Tensor, "*B outputs"]:
    """Return the product by oneDNN, or call `forward` if it is small or not in float32."""
    is_large = inputs.numel() * len(weight) >= MIN_MULTIPLICATIONS
    if not is_large or inputs.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return forward(inputs)
    # Reshape outside of the function, so that the output can be overwritten by `cross_entropy_`.
    rows = inputs.reshape(-1, inputs.shape[-1])
    output: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return output.view(*inputs.shape[:-1], len(weight))


def multiply_transposed(
    left: Float[Tensor, "B outputs"], right: Float[Tensor, "B inputs"]
) -> Float[Tensor, "outputs inputs"]:
    """Return left.T @ right. With AVX2, MKL is as fast as oneDNN for this product."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return left.t() @ right
    if left.shape[1] > right.shape[1]:  # oneDNN is faster if the second factor is the larger one
        return multiply_transposed(right, left).t()
    product: Tensor = _multiply(left.t(), right.t(), None, "none", [], "")
    return product


def concatenated_weights(layers: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Return the weight and bias of one layer whose outputs are those of all layers."""
    weights = tuple[Tensor, ...](layer.weight for layer in layers)
    weight = torch.cat(weights) if len(weights) > 1 else weights[0]
    if all(layer.bias is None for layer in layers):
        return weight, None
    biases: list[Tensor] = [
        layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
        for layer in layers
    ]
    return weight, torch.cat(biases)


def apply_together(
    layers: Sequence[nn.Linear], inputs: Float[Tensor, "*B inputs"]
) -> Sequence[Tensor]:
    """Return the outputs of layers with the same inputs, computed as one product if it is large."""
    widths = [layer.out_features for layer in layers]
    is_large = inputs.numel() * sum(widths) >= MIN_MULTIPLICATIONS
    if not is_large:
        return [layer(inputs) for layer in layers]
    weight, bias = concatenated_weights(layers)
    output = apply_linear(partial(F.linear, weight=weight, bias=bias), weight, bias, inputs)
    return torch.split(output, widths, dim=-1)


class _Linear(torch.autograd.Function):
    """y = W x + b for rows x."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        output: Tensor = _multiply(inputs, weight, bias, "none", [], "")
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad_output.contiguous()
        grad_inputs = grad_weight = grad_bias = None
        if needs_inputs:
            grad_inputs = _multiply(rows, weight.t(), None, "none", [], "")
        if needs_weight:
            grad_weight = multiply_transposed(rows, inputs)
        if needs_bias:
            grad_bias = rows.sum(dim=0)
        return grad_inputs, grad_weight, grad_bias
