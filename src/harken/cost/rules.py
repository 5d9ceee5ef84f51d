"""Floating-point operations and memory traffic of one operation.

Matrix products and convolutions are counted by PyTorch's registry (`torch.utils.flop_counter`), two
floating-point operations per multiply-add; `FLOPS` has CPU kernels that it lacks or counts wrong.
The products that a fused attention kernel recomputes in the backward pass are not counted. Traffic
is the bytes that an operation reads and writes without caches.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from harken.cost.trace import Call, packets, tensors_in

aten = torch.ops.aten
LOOKUPS = packets("embedding index index_select gather")
NO_TRAFFIC = packets(
    "_unsafe_view unsafe_split unsafe_split_with_sizes lift_fresh promote_types "
    "empty empty_like new_empty empty_strided new_empty_strided"
)


def flops(call: Call) -> int:
    """Count floating-point operations of products; elementwise operations and sums count 0."""
    packet = call.operator.overloadpacket
    if packet in FLOPS:
        return FLOPS[packet](*call.args)
    if packet not in flop_registry:
        return 0
    output = call.outputs[0] if len(call.outputs) == 1 else call.outputs
    return int(flop_registry[packet](*call.args, **call.kwargs, out_val=output))


def traffic(call: Call) -> int:
    """Count bytes read and written."""
    if has_no_traffic(call):
        return 0
    if call.operator.overloadpacket in LOOKUPS:  # reads as much of the table as it writes
        return sum(map(byte_size, (*call.outputs, *call.outputs, *call.inputs[1:])))
    written = call.outputs
    if call.operator._schema.is_mutable:
        arguments = zip(call.operator._schema.arguments, call.args, strict=False)
        written = tensors_in([value for schema, value in arguments if is_written(schema)])
    return sum(map(byte_size, (*call.inputs, *written)))


def is_written(argument: Any) -> bool:
    """Return whether an operation changes an argument."""
    alias = argument.alias_info  # fused optimizers change `grads` only for loss scaling
    return alias is not None and alias.is_write and argument.name != "grads"


def has_no_traffic(call: Call) -> bool:
    """Return whether an operation reads and writes no elements, such as a view or an allocation."""
    return call.operator.is_view or call.operator.overloadpacket in NO_TRAFFIC


def byte_size(tensor: Tensor) -> int:
    """Return the size of the elements in bytes."""
    return tensor.numel() * tensor.element_size()


def _attention(queries: Tensor, keys: Tensor, values: Tensor, *rest: Any) -> int:
    """Scores and weighted sum: 2 B k T S (U + I)."""
    return 2 * queries[..., 0].numel() * keys.shape[-2] * (keys.shape[-1] + values.shape[-1])


def _lstm(inputs: Tensor, input_weight: Tensor, state_weight: Tensor, *rest: Any) -> int:
    """Each token and each state is multiplied by a weight matrix."""
    return 2 * math.prod(inputs.shape[:2]) * (input_weight.numel() + state_weight.numel())


def _convolution_backward(gradient: Tensor, values: Tensor, weight: Tensor, *rest: Any) -> int:
    """Each gradient costs as much as the forward pass; PyTorch's own entry ignores the groups."""
    transposed, output_mask = rest[4], rest[7]
    positions = math.prod((values if transposed else gradient).shape[2:])
    return int(2 * values.shape[0] * positions * weight.numel() * sum(output_mask[:2]))


# A backward pass has two products for each product of the forward pass.
FLOPS: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda gradient, *inputs: (
        2 * _attention(*inputs)
    ),
    aten.mkldnn_rnn_layer: _lstm,
    aten.mkldnn_rnn_layer_backward: lambda *args: 2 * _lstm(*args),
    aten.convolution_backward: _convolution_backward,
}


class WorkCounter:
    """An observer that counts operations and traffic."""

    def __init__(self) -> None:
        self.flops = self.traffic = 0

    def observe(self, call: Call) -> None:
        self.flops += flops(call)
        self.traffic += traffic(call)
