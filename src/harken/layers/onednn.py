"""Run linear layers with oneDNN instead of MKL, on a CPU in float32.

`packed_linears` is for inference: oneDNN stores each weight once in its blocked layout, which makes
products with few rows, as in decoding, up to three times faster than PyTorch's. `onednn_linears` is
for training: large products take a sixth less time than in MKL, on a CPU that is not from Intel.
"""

import os
from collections.abc import Callable, Iterator
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


def packed_linears(model: nn.Module) -> AbstractContextManager[None]:
    """Inside this block, apply the linear layers of a model with packed copies of their weights.

    The weights must not change inside the block. Calls that need gradients use the weights as they
    are.
    """
    return _replaced_forwards(model, _pack)


def onednn_linears(model: nn.Module) -> AbstractContextManager[None]:
    """Inside this block, compute large products of the linear layers of a model with oneDNN.

    Outputs and gradients are those of `nn.Linear` up to rounding. It has no effect under autocast,
    and where MKL is fast.
    """
    return _replaced_forwards(model, _use_onednn) if mkl_is_slow() else nullcontext()


@contextmanager
def _replaced_forwards(
    model: nn.Module, replace: Callable[[nn.Linear], Callable[[Tensor], Tensor]]
) -> Iterator[None]:
    linears = [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear) and is_packable(module.weight)
    ]
    outer = [vars(module).get("forward") for module in linears]  # of an enclosing block
    try:
        for module in linears:
            vars(module)["forward"] = replace(module)
        yield
    finally:
        for module, forward in zip(linears, outer, strict=True):
            vars(module).pop("forward", None)
            if forward is not None:
                vars(module)["forward"] = forward


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


def _pack(module: nn.Linear) -> Callable[[Tensor], Tensor]:
    with torch.no_grad():
        packed = torch.ops.mkldnn._reorder_linear_weight(module.weight, TYPICAL_ROWS)
    bias = None if module.bias is None else module.bias.detach()
    return partial(apply_packed, module.forward, packed, bias)


def _use_onednn(module: nn.Linear) -> Callable[[Tensor], Tensor]:
    return partial(apply_linear, module.forward, module.weight, module.bias)


def apply_packed(
    forward: Callable[[Tensor], Tensor],
    weight: Tensor,
    bias: Float[Tensor, "outputs"] | None,
    inputs: Float[Tensor, "*B inputs"],
) -> Float[Tensor, "*B outputs"]:
    """Return the product with a packed weight, or call `forward` if gradients are needed."""
    if torch.is_grad_enabled() or inputs.dtype != torch.float32:
        return forward(inputs)
    output: Tensor = _multiply(inputs, weight, bias, "none", [], "")
    return output


_multiply = torch.ops.mkldnn._linear_pointwise.default


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


class _Linear(torch.autograd.Function):
    """y = W x + b for rows x. MKL is as fast as oneDNN for the gradient of W."""

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
            grad_weight = rows.t() @ inputs
        if needs_bias:
            grad_bias = rows.sum(dim=0)
        return grad_inputs, grad_weight, grad_bias
