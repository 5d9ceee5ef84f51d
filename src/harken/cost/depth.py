"""Depth of a forward pass: the longest chain of dependent steps, with unlimited parallel hardware.

    elementwise operation              1 step
    sum of n terms                     ⌈log2 n⌉ steps, added in pairs
    inner product of n terms           1 + ⌈log2 n⌉ steps, or n if inner products are serial
    softmax; layer norm, RMS norm      two sums, and 3 or 5 elementwise steps
    copies, views, integers, masks     0 steps

The time of a tensor is the number of steps until it is ready. It is stored per tensor, or per
element after a recurrence, because stacked recurrent layers overlap: the second layer starts when
the first has read its first token. The weighted sum of attention is added in pairs even if inner
products are serial.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from harken.cost.trace import Call, is_float, packets, tensors_in

aten = torch.ops.aten

Time = int | Tensor  # of a tensor, or of each element; constant axes have stride 0


class TensorState(NamedTuple):
    """The time of a tensor, and whether it holds the weights of a softmax."""

    time: Time
    is_weights: bool = False


MOVES = packets(
    "cat stack clone flip roll constant_pad_nd repeat _unsafe_view unsafe_split unsafe_chunk "
    "unsafe_split_with_sizes index_select index gather _to_copy lift_fresh masked_select"
)
RESHAPES = packets("view _unsafe_view")
IN_PLACE_VIEWS = packets("transpose_ squeeze_ unsqueeze_ t_")
WRITES = packets("copy_ index_put_ _index_put_impl_ scatter_ masked_scatter_")
FACTORIES = packets(
    "empty_like zeros_like ones_like full_like rand_like randn_like new_empty new_zeros new_ones "
    "new_full new_empty_strided bernoulli_ random_ uniform_ normal_ zero_ fill_"
)
CELL_STEPS = 6  # elementwise steps of an LSTM cell


class Depth:
    """An observer that computes the time of each tensor, with parallel or serial inner products."""

    def __init__(self, *, serial: bool = False) -> None:
        self.serial = serial
        self.total = 0
        self._states: Any = WeakTensorKeyDictionary()
        self._written: Any = WeakIdKeyDictionary()  # storage -> (first, end, time) of each write

    def observe(self, call: Call) -> None:
        packet, inputs, count = call.operator.overloadpacket, call.inputs, len(call.outputs)
        states = [self._state(tensor) for tensor in inputs]
        start = latest_time(state.time for state in states)
        has_weights = any(state.is_weights for state in states)
        is_weights = packet is aten._softmax
        if packet in FACTORIES or not inputs:
            times: Sequence[Time] = [0] * count
        elif not any(map(is_float, (*inputs, *call.outputs))):  # integers and masks
            times = [start] * count
        elif call.operator.is_view or packet in MOVES or packet in IN_PLACE_VIEWS:
            times, is_weights = self._move_times(call, states, start), has_weights
        elif packet in WRITES:
            writes = self._written.setdefault(call.args[0].untyped_storage(), [])
            writes.append((*extent(call.args[0]), start))
            times = [start]
        elif packet in RULES:
            time, shape = RULES[packet](self, call), call.outputs[0].shape
            latest = latest_time([time])
            times = [time if output.shape == shape else latest for output in call.outputs]
        elif torch.Tag.pointwise in call.operator.tags:
            time = add_steps([state.time for state in states], 1, call.outputs[0].shape)
            times, is_weights = [time] * count, has_weights
        else:  # any other operation counts as one sum
            terms = max(tensor.numel() for tensor in inputs) / max(1, call.outputs[0].numel())
            times = [start + max(1, sum_steps(math.ceil(terms)))] * count
        for output, time in zip(call.outputs, times, strict=True):
            self._states[output] = TensorState(time, is_weights)
            self.total = max(self.total, latest_time([time]))

    def _state(self, tensor: Tensor) -> TensorState:
        state: TensorState = self._states.get(tensor, TensorState(0))
        if not len(self._written) or tensor.untyped_storage() not in self._written:
            return state
        low, high = extent(tensor)
        writes = self._written[tensor.untyped_storage()]
        times = [time for first, end, time in writes if first < high and low < end]
        return state._replace(time=latest_time([state.time, *times])) if times else state

    def time(self, tensor: Tensor) -> Time:
        return self._state(tensor).time

    def latest(self, *tensors: Tensor) -> int:
        """Return the time at which all tensors are ready."""
        return latest_time(map(self.time, tensors))

    def inner_steps(self, terms: int, *operands: Tensor) -> int:
        """Return the steps of an inner product; weighted sums of attention are added in pairs."""
        weighted = any(self._state(operand).is_weights for operand in operands)
        return terms if self.serial and not weighted else 1 + sum_steps(terms)

    def _move_times(self, call: Call, states: Sequence[TensorState], start: int) -> Sequence[Time]:
        """Apply a copy or view to the times of the elements; `start` is the latest of all."""
        packet, (data, *arguments) = call.operator.overloadpacket, call.args
        is_list = isinstance(data, list | tuple)
        tensors = data if is_list else [data]
        times = {state.time for state in states} if is_list else set()
        if len(times) < 2 and all(isinstance(state.time, int) for state in states):
            return [start] * len(call.outputs)
        if packet in IN_PLACE_VIEWS:  # `data` already has the new shape
            view = getattr(aten, packet.__name__.removesuffix("_"))
            return [view(self.time(data), *arguments)]
        if packet in {aten.clone, aten._to_copy}:
            return [self.time(data)]
        expanded = [expand_time(self.time(tensor), tensor.shape) for tensor in tensors]
        if packet in RESHAPES:  # the times may have other strides, which `view` rejects
            moved = expanded[0].reshape(call.outputs[0].shape)
        else:
            moved = call.operator(expanded if is_list else expanded[0], *arguments, **call.kwargs)
        ready = self.latest(*tensors_in(arguments))  # such as indices
        return [
            add_steps([compress_times(output)], 0, output.shape, at_least=ready)
            for output in tensors_in(moved)
        ]


def extent(tensor: Tensor) -> tuple[int, int]:
    """Return first and end of the range of the storage that a tensor covers."""
    low = int(tensor.storage_offset())
    spans = zip(tensor.shape, tensor.stride(), strict=True)
    return low, low + 1 + sum((size - 1) * stride for size, stride in spans)


def sum_steps(terms: int) -> int:
    """Return the steps of a sum that is added in pairs."""
    return (max(terms, 1) - 1).bit_length()


def latest_time(times: Iterable[Time]) -> int:
    """Return the maximum of times, over all elements."""
    return max((time if isinstance(time, int) else int(time.max()) for time in times), default=0)


def expand_time(time: Time, shape: Sequence[int]) -> Tensor:
    """Expand a time to a shape, without memory for equal elements."""
    return torch.as_tensor(time).expand(shape)


def compress_times(times: Tensor) -> Time:
    """Return the times with constant axes expanded, or one number if all are equal."""
    if times.numel() == 0:
        return 0
    for axis, stride in enumerate(times.stride()):
        first = times.narrow(axis, 0, 1)
        if stride != 0 and bool((times == first).all()):
            times = first.expand(times.shape)
    return int(unexpand(times)) if unexpand(times).numel() == 1 else times


def unexpand(times: Tensor) -> Tensor:
    """Reduce expanded axes (stride 0) to size 1."""
    for axis, stride in enumerate(times.stride()):
        times = times.narrow(axis, 0, 1) if stride == 0 and times.shape[axis] > 1 else times
    return times


def add_steps(times: Sequence[Time], steps: int, shape: Sequence[int], at_least: int = 0) -> Time:
    """Return the elementwise maximum of the times and `at_least`, plus `steps`."""
    start = max([at_least, *(time for time in times if isinstance(time, int))])
    arrays = [unexpand(time) for time in times if isinstance(time, Tensor)]
    if not arrays:
        return start + steps
    return (functools.reduce(torch.maximum, arrays).clamp(min=start) + steps).expand(shape)


def max_over(time: Time, axes: Sequence[int]) -> Time:
    """Return the latest time along some axes."""
    return time if isinstance(time, int) else unexpand(time).amax(tuple(axes), keepdim=True)


def _matrix_product(depth: Depth, call: Call, has_bias: bool = False) -> Time:
    """mm and bmm; addmm and baddbmm, whose first argument is a bias."""
    left, right = call.args[1:3] if has_bias else call.args[:2]
    steps = depth.inner_steps(left.shape[-1], left, right) + int(has_bias)
    times = [max_over(depth.time(left), [-1]), max_over(depth.time(right), [-2])]
    start = depth.latest(call.args[0]) if has_bias else 0
    return add_steps(times, steps, call.outputs[0].shape, at_least=start)


def _convolution(depth: Depth, call: Call) -> Time:
    """An inner product over channels and kernel positions."""
    values, weight, bias = call.args[:3]
    transposed, groups = call.args[6], call.args[8]
    channels = weight.shape[0] // groups if transposed else weight.shape[1]
    steps = depth.inner_steps(channels * math.prod(weight.shape[2:])) + int(bias is not None)
    return depth.latest(values, weight) + steps


def _attention(depth: Depth, call: Call) -> Time:
    """Scores, softmax and weighted sum in one kernel."""
    queries, keys, values = call.args[:3]
    mask, sum_keys = call.kwargs.get("attn_mask"), sum_steps(keys.shape[-2])
    scores, softmax = depth.inner_steps(queries.shape[-1]), 3 + 2 * sum_keys
    steps = scores + int(mask is not None) + softmax + 1 + sum_keys
    start = depth.latest(keys, values, *tensors_in(mask))
    times = [max_over(depth.time(queries), [-1])]
    return add_steps(times, steps, call.outputs[0].shape, at_least=start)


def _normalization(depth: Depth, call: Call) -> Time:
    """Two sums over the normalized axes, and 3 (softmax) or 5 (layer norm) elementwise steps."""
    values, axes = call.args[:2]
    axes, steps = ([axes], 3) if isinstance(axes, int) else (range(-len(axes), 0), 5)
    steps += 2 * sum_steps(math.prod(values.shape[axis] for axis in axes))
    return add_steps([max_over(depth.time(values), axes)], steps, values.shape)


def _reduction(depth: Depth, call: Call) -> Time:
    """A sum, mean or norm over some axes, or over all of them."""
    values, packet = call.args[0], call.operator.overloadpacket
    terms = values.numel() // max(1, call.outputs[0].numel())
    start = depth.latest(values)
    if packet is aten.linalg_vector_norm:  # the square root of an inner product
        return start + depth.inner_steps(terms) + 1
    return start + sum_steps(terms) + int(packet is aten.mean)


def _lstm(depth: Depth, call: Call) -> Time:
    """oneDNN's LSTM layer on T B J: the product with the input does not wait for the state."""
    values, input_weight, state_weight = call.args[:3]
    reverse, length = call.args[7], values.shape[0]
    input_times = expand_time(depth.time(values), values.shape).amax((1, 2)).tolist()
    input_steps = depth.inner_steps(input_weight.shape[1]) + 1
    state_steps = depth.inner_steps(state_weight.shape[1])
    state_time, times = depth.latest(*tensors_in(call.args[1:])), []
    for input_time in reversed(input_times) if reverse else input_times:
        state_time = max(state_time + state_steps, input_time + input_steps) + CELL_STEPS
        times.append(state_time)
    ordered = torch.tensor(times[::-1] if reverse else times)
    return ordered.view(length, 1, 1).expand(call.outputs[0].shape)


RULES: dict[Any, Callable[[Depth, Call], Time]] = {
    aten.mm: _matrix_product,
    aten.bmm: _matrix_product,
    aten.addmm: lambda depth, call: _matrix_product(depth, call, has_bias=True),
    aten.baddbmm: lambda depth, call: _matrix_product(depth, call, has_bias=True),
    aten.convolution: _convolution,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._softmax: _normalization,
    aten._log_softmax: _normalization,
    aten.native_layer_norm: _normalization,
    aten._fused_rms_norm: _normalization,
    aten.mkldnn_rnn_layer: _lstm,
    # The forward variables of a frame take three steps after those of the previous frame.
    aten._ctc_loss: lambda depth, call: depth.latest(call.args[0]) + 3 * call.args[0].shape[0],
    aten.embedding: lambda depth, call: depth.latest(*call.inputs) + 1,
    aten.sum: _reduction,
    aten.mean: _reduction,
    aten.linalg_vector_norm: _reduction,
}
