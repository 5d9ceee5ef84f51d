"""Depth of a forward pass: the longest chain of dependent steps, with unlimited parallel hardware.

    elementwise operation              1 step
    sum of n terms                     ⌈log2 n⌉ steps, added in pairs
    inner product of n terms           1 + ⌈log2 n⌉ steps, or n if inner products are serial
    softmax, layer norm                two sums and 3 or 5 elementwise steps
    copies, views, integers, masks     none

The time at which each element of a tensor is ready is one number for most tensors and a tensor of
numbers after a recurrence, so stacked recurrent layers overlap: the second layer starts when the
first has read its first token. A sum weighted by a softmax is never serial.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from harken.cost.trace import Call, is_float, operands

aten = torch.ops.aten

Time = int | Tensor
"""Steps until an element is ready: one number, or one per element with constant axes expanded."""


class Ready(NamedTuple):
    """When a tensor is ready, and whether it holds the weights of a softmax."""

    time: Time
    is_weights: bool = False


def packets(names: str) -> set[Any]:
    """Return operators by name."""
    return {getattr(aten, name) for name in names.split()}


MOVES = packets(
    "cat stack clone flip roll constant_pad_nd repeat _unsafe_view unsafe_split unsafe_chunk "
    "unsafe_split_with_sizes index_select index gather _to_copy lift_fresh masked_select"
)
RESHAPES = packets("view _unsafe_view")
IN_PLACE_VIEWS = {
    aten.transpose_: aten.transpose,
    aten.squeeze_: aten.squeeze,
    aten.unsqueeze_: aten.unsqueeze,
    aten.t_: aten.t,
}
WRITES = packets("copy_ index_put_ _index_put_impl_ scatter_ masked_scatter_")
FACTORIES = packets(
    "empty_like zeros_like ones_like full_like rand_like randn_like new_empty new_zeros new_ones "
    "new_full new_empty_strided bernoulli_ random_ uniform_ normal_ zero_ fill_"
)
GATES = 6  # elementwise steps of an LSTM cell


class Depth:
    """An observer that follows readiness. `serial` adds up inner products one term at a time."""

    def __init__(self, *, serial: bool = False) -> None:
        self.serial = serial
        self.total = 0
        self._ready: Any = WeakTensorKeyDictionary()
        self._written: Any = WeakIdKeyDictionary()  # storages that were assigned to in part

    def observe(self, call: Call) -> None:
        packet, inputs, count = call.operator.overloadpacket, call.inputs, len(call.outputs)
        ready = [self._of(tensor) for tensor in inputs]
        start = latest_time(state.time for state in ready)
        has_weights = any(state.is_weights for state in ready)
        is_weights = packet is aten._softmax
        if packet in FACTORIES or not inputs:
            times: Sequence[Time] = [0] * count
        elif not any(map(is_float, (*inputs, *call.outputs))):  # masks are known from the start
            times = [start] * count
        elif call.operator.is_view or packet in MOVES or packet in IN_PLACE_VIEWS:
            times, is_weights = self._moved(call, ready), has_weights
        elif packet in WRITES:
            written = self._written.setdefault(call.args[0].untyped_storage(), [])
            written.append((*extent(call.args[0]), start))
            times = [start]
        elif packet in RULES:
            time, shape = RULES[packet](self, call), call.outputs[0].shape
            whole = latest_time([time])
            times = [time if output.shape == shape else whole for output in call.outputs]
        elif torch.Tag.pointwise in call.operator.tags:
            time = later([state.time for state in ready], 1, call.outputs[0].shape)
            times, is_weights = [time] * count, has_weights
        else:
            terms = max(tensor.numel() for tensor in inputs) / max(1, call.outputs[0].numel())
            times = [start + max(1, tree(math.ceil(terms)))] * count
        for output, time in zip(call.outputs, times, strict=True):
            self._ready[output] = Ready(time, is_weights)
            self.total = max(self.total, latest_time([time]))

    def _of(self, tensor: Tensor) -> Ready:
        ready: Ready = self._ready.get(tensor, Ready(0))
        if not len(self._written) or tensor.untyped_storage() not in self._written:
            return ready
        low, high = extent(tensor)
        parts = self._written[tensor.untyped_storage()]
        written = [time for start, end, time in parts if start < high and low < end]
        return Ready(latest_time([ready.time, *written]), ready.is_weights) if written else ready

    def time(self, tensor: Tensor) -> Time:
        return self._of(tensor).time

    def inner(self, terms: int, *operands: Tensor) -> int:
        """Return the steps of an inner product of two tensors."""
        weighted = any(self._of(operand).is_weights for operand in operands)
        return terms if self.serial and not weighted else 1 + tree(terms)

    def _moved(self, call: Call, ready: Sequence[Ready]) -> Sequence[Time]:
        """Move the times of elements like a copy or view moves the elements."""
        packet, (data, *rest) = call.operator.overloadpacket, call.args
        tensors = data if isinstance(data, list | tuple) else [data]
        is_list = tensors is data
        joined = {self.time(tensor) for tensor in tensors} if is_list else set()
        if len(joined) < 2 and all(isinstance(state.time, int) for state in ready):
            return [latest_time(state.time for state in ready)] * len(call.outputs)
        if packet in IN_PLACE_VIEWS:  # the tensor has its new shape already
            return [IN_PLACE_VIEWS[packet](self.time(data), *rest)]
        if packet in {aten.clone, aten._to_copy}:
            return [self.time(data)]
        filled = [spread(self.time(tensor), tensor.shape) for tensor in tensors]
        if packet in RESHAPES:  # times may be strided in another way
            moved = filled[0].reshape(call.outputs[0].shape)
        else:
            moved = call.operator(filled if is_list else filled[0], *rest, **call.kwargs)
        floor = latest_time(self.time(tensor) for tensor in operands(rest))
        parts = operands([moved])
        return [later([compressed(part)], 0, part.shape, at_least=floor) for part in parts]


def extent(tensor: Tensor) -> tuple[int, int]:
    """Return the first and last place of a tensor in its storage."""
    low = int(tensor.storage_offset())
    spans = zip(tensor.shape, tensor.stride(), strict=True)
    return low, low + 1 + sum((size - 1) * stride for size, stride in spans)


def tree(terms: int) -> int:
    """Return the steps of a sum in which any two numbers may be added at once."""
    return (max(terms, 1) - 1).bit_length()


def latest_time(times: Iterable[Time]) -> int:
    """Return when everything is ready."""
    return max((time if isinstance(time, int) else int(time.max()) for time in times), default=0)


def spread(time: Time, shape: Sequence[int]) -> Tensor:
    """Expand a time to a shape, without memory for equal elements."""
    return torch.as_tensor(time).expand(shape)


def compressed(times: Tensor) -> Time:
    """Return the same times with constant axes expanded; a number if all are equal."""
    if times.numel() == 0:
        return 0
    for axis, stride in enumerate(times.stride()):
        first = times.narrow(axis, 0, 1)
        if stride != 0 and bool((times == first).all()):
            times = first.expand(times.shape)
    return int(narrowed(times)) if narrowed(times).numel() == 1 else times


def narrowed(times: Tensor) -> Tensor:
    """Reduce expanded axes to size 1."""
    for axis, stride in enumerate(times.stride()):
        times = times.narrow(axis, 0, 1) if stride == 0 and times.shape[axis] > 1 else times
    return times


def later(times: Sequence[Time], steps: int, shape: Sequence[int], at_least: int = 0) -> Time:
    """Return for each element when its last input is ready, plus some steps."""
    start = max([at_least, *(time for time in times if isinstance(time, int))])
    arrays = [narrowed(time) for time in times if isinstance(time, Tensor)]
    if not arrays:
        return start + steps
    total = arrays[0]
    for array in arrays[1:]:
        total = torch.maximum(total, array)
    return (total.clamp(min=start) + steps).expand(shape)


def over(time: Time, axes: Sequence[int]) -> Time:
    """Return when all elements along some axes are ready."""
    return time if isinstance(time, int) else narrowed(time).amax(tuple(axes), keepdim=True)


def _matrix_product(depth: Depth, call: Call, offset: bool = False) -> Time:
    """Handle mm, bmm, and addmm, baddbmm with an offset first."""
    left, right = call.args[1:3] if offset else call.args[:2]
    steps = depth.inner(left.shape[-1], left, right) + int(offset)
    times = [over(depth.time(left), [-1]), over(depth.time(right), [-2])]
    floor = latest_time([depth.time(call.args[0])]) if offset else 0
    return later(times, steps, call.outputs[0].shape, at_least=floor)


def _convolution(depth: Depth, call: Call) -> Time:
    """An inner product over the channels and places under the kernel."""
    values, weight, bias = call.args[:3]
    transposed, groups = call.args[6], call.args[8]
    channels = weight.shape[0] // groups if transposed else weight.shape[1]
    steps = depth.inner(channels * math.prod(weight.shape[2:])) + int(bias is not None)
    return latest_time([depth.time(values), depth.time(weight)]) + steps


def _attention(depth: Depth, call: Call) -> Time:
    """Scores, softmax and weighted sum in one kernel."""
    queries, keys, values = call.args[:3]
    mask = call.kwargs.get("attn_mask")
    places = tree(keys.shape[-2])
    steps = depth.inner(queries.shape[-1]) + (2 * places + 3) + (1 + places) + int(mask is not None)
    others = [keys, values] if mask is None else [keys, values, mask]
    floor = latest_time(depth.time(tensor) for tensor in others)
    return later([over(depth.time(queries), [-1])], steps, call.outputs[0].shape, at_least=floor)


def _softmax(depth: Depth, call: Call) -> Time:
    """Maximum, difference, exponential, sum, quotient."""
    values, axis = call.args[:2]
    steps = 3 + 2 * tree(values.shape[axis])
    return later([over(depth.time(values), [axis])], steps, values.shape)


def _layer_norm(depth: Depth, call: Call) -> Time:
    """Mean and variance over the features, then five elementwise steps."""
    values, shape = call.args[:2]
    steps = 5 + 2 * tree(math.prod(shape))
    return later([over(depth.time(values), range(-len(shape), 0))], steps, values.shape)


def _reduction(depth: Depth, call: Call) -> Time:
    """A sum, mean or norm over some axes, or over all of them."""
    values, packet = call.args[0], call.operator.overloadpacket
    terms = values.numel() // max(1, call.outputs[0].numel())
    start = latest_time([depth.time(values)])
    if packet is aten.linalg_vector_norm:  # the square root of an inner product
        return start + depth.inner(terms) + 1
    return start + tree(terms) + int(packet is aten.mean)


def _lookup(depth: Depth, call: Call) -> Time:
    return latest_time(depth.time(tensor) for tensor in call.inputs) + 1


def _lstm(depth: Depth, call: Call) -> Time:
    """oneDNN's LSTM layer, T B J: the input product of all steps, then one step after another."""
    values, input_weight, state_weight = call.args[:3]
    reverse, time = call.args[7], depth.time(values)
    length = values.shape[0]
    reads = spread(time, values.shape).amax((1, 2)).tolist()
    enters = depth.inner(input_weight.shape[1]) + 1
    repeats = depth.inner(state_weight.shape[1])
    state, states = latest_time(depth.time(tensor) for tensor in operands(call.args[1:])), []
    for read in reversed(reads) if reverse else reads:
        state = max(state + repeats, read + enters) + GATES
        states.append(state)
    ordered = torch.tensor(states[::-1] if reverse else states)
    return ordered.view(length, 1, 1).expand(call.outputs[0].shape)


def _ctc(depth: Depth, call: Call) -> Time:
    """The forward variables of a frame follow from those of the frame before in three steps."""
    frames: Tensor = call.args[0]
    return latest_time([depth.time(frames)]) + 3 * frames.shape[0]


RULES: dict[Any, Callable[[Depth, Call], Time]] = {
    aten.mm: _matrix_product,
    aten.bmm: _matrix_product,
    aten.addmm: lambda depth, call: _matrix_product(depth, call, offset=True),
    aten.baddbmm: lambda depth, call: _matrix_product(depth, call, offset=True),
    aten.convolution: _convolution,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._softmax: _softmax,
    aten._log_softmax: _softmax,
    aten.native_layer_norm: _layer_norm,
    aten._fused_rms_norm: _layer_norm,
    aten.mkldnn_rnn_layer: _lstm,
    aten._ctc_loss: _ctc,
    aten.embedding: _lookup,
    aten.sum: _reduction,
    aten.mean: _reduction,
    aten.linalg_vector_norm: _reduction,
}
