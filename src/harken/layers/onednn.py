"""Run linear layers with oneDNN instead of MKL, on a CPU in float32.

`PackedLinear` is for inference: oneDNN stores each weight once in its blocked layout, which makes
products with few rows, as in decoding, up to three times faster than PyTorch's. `onednn_linears` is
for training, on a CPU that is not from Intel: large products take a sixth less time than in MKL
with AVX2, and half the time with AVX-512.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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
def replaced_forwards(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Inside this block, call these functions in place of the `forward` of modules."""
    outer = {module: vars(module).get("forward") for module in forwards}  # of an enclosing block
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for module, original in outer.items():
            vars(module).pop("forward", None)
            if original is not None:
                vars(module)["forward"] = original


def onednn_linears(model: nn.Module) -> AbstractContextManager[None]:
    """Inside this block, compute large products of the linear layers of a model with oneDNN.

    Outputs and gradients are those of `nn.Linear` up to rounding. It has no effect under autocast,
    and where MKL is fast.
    """
    if not mkl_is_slow():
        return nullcontext()
    return replaced_forwards(
        {
            linear: partial(apply_linear, linear.forward, linear.weight, linear.bias)
            for linear in packable_linears(model)
        }
    )


def packable_linears(model: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a model that oneDNN can compute."""
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear) and is_packable(module.weight)
    ]


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
        weights = [layer.weight.detach() for layer in layers]
        weight = torch.cat(weights) if len(layers) > 1 else weights[0]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)
        self._bias = None
        if any(layer.bias is not None for layer in layers):
            biases = [
                layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
                for layer in layers
            ]
            self._bias = torch.cat(biases).detach()
        name, algorithm = ("none", "") if activation is None else ACTIVATIONS[activation]
        self._operation = (self._bias, name, [], algorithm)

    def __call__(self, inputs: Float[Tensor, "*B inputs"]) -> Float[Tensor, "*B outputs"]:
        output: Tensor = _multiply(inputs, self._weight, *self._operation)
        return output

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
