"""Depth of a forward pass: the longest chain of dependent steps, with unlimited parallel hardware.

    elementwise operation              1 step
    sum of n terms                     ⌈log2 n⌉ steps, added in pairs
    inner product of n terms           1 + ⌈log2 n⌉ steps, or n if inner products are serial
    softmax, layer norm                two sums and 3 or 5 elementwise steps
    copies, views, integers, masks     none

Each element of a tensor is ready some steps after the start. This time is one number for most
tensors and a tensor of numbers after a recurrence, so stacked recurrent layers overlap: the second
layer starts when the first has read its first token. A sum weighted by a softmax is a sum over time
or places; it is never serial.
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


MOVES = {
    *(aten.cat, aten.stack, aten.clone, aten.flip, aten.roll, aten.constant_pad_nd, aten.repeat),
    *(aten._unsafe_view, aten.unsafe_split, aten.unsafe_split_with_sizes, aten.unsafe_chunk),
    *(
        aten.index_select,
        aten.index,
        aten.gather,
        aten._to_copy,
        aten.lift_fresh,
        aten.masked_select,
    ),
}
RESHAPES = {aten.view, aten._unsafe_view}
IN_PLACE_VIEWS = {
    aten.transpose_: aten.transpose,
    aten.squeeze_: aten.squeeze,
    aten.unsqueeze_: aten.unsqueeze,
    aten.t_: aten.t,
}
WRITES = {aten.copy_, aten.index_put_, aten._index_put_impl_, aten.scatter_, aten.masked_scatter_}
FACTORIES = {
    *(aten.empty_like, aten.zeros_like, aten.ones_like, aten.full_like, aten.rand_like),
    *(aten.randn_like, aten.new_empty, aten.new_zeros, aten.new_ones, aten.new_full),
    *(aten.new_empty_strided, aten.bernoulli_, aten.random_, aten.uniform_, aten.normal_),
    *(aten.zero_, aten.fill_),
}
GATES = 6  # elementwise steps of an LSTM cell


class Depth:
    """An observer that follows readiness. `serial` adds up inner products one term at a time."""

    def __init__(self, *, serial: bool = False) -> None:
        self.serial = serial
        self.total = 0
        self._ready: Any = WeakTensorKeyDictionary()
        self._written: Any = WeakIdKeyDictionary()  # storages that were assigned to in part

    def observe(self, call: Call) -> None:
        packet, inputs = call.operator.overloadpacket, call.inputs
        known = [self._of(tensor) for tensor in inputs]
        is_weights = packet is aten._softmax
        if packet in FACTORIES or not inputs:
            times: Sequence[Time] = [0] * len(call.outputs)
        elif not any(map(is_float, (*inputs, *call.outputs))):  # masks are known from the start
            times = [latest(ready.time for ready in known)] * len(call.outputs)
        elif call.operator.is_view or packet in MOVES or packet in IN_PLACE_VIEWS:
            times = self._moved(call, known)
            is_weights = any(ready.is_weights for ready in known)
        elif packet in WRITES:
            assigned = latest(ready.time for ready in known)
            written = self._written.setdefault(call.args[0].untyped_storage(), [])
            written.append((*extent(call.args[0]), assigned))
            times = [assigned]
        elif packet in RULES:
            time, shape = RULES[packet](self, call), call.outputs[0].shape
            times = [time if one.shape == shape else latest([time]) for one in call.outputs]
        elif torch.Tag.pointwise in call.operator.tags:
            shape = call.outputs[0].shape
            times = [later([ready.time for ready in known], 1, shape)] * len(call.outputs)
            is_weights = any(ready.is_weights for ready in known)
        else:
            terms = max(tensor.numel() for tensor in inputs) / max(1, call.outputs[0].numel())
            start = latest(ready.time for ready in known)
            times = [start + max(1, tree(math.ceil(terms)))] * len(call.outputs)
        for output, time in zip(call.outputs, times, strict=True):
            self._ready[output] = Ready(time, is_weights)
            self.total = max(self.total, latest([time]))

    def _of(self, tensor: Tensor) -> Ready:
        ready: Ready = self._ready.get(tensor, Ready(0))
        if not len(self._written) or tensor.untyped_storage() not in self._written:
            return ready
        low, high = extent(tensor)
        parts = self._written[tensor.untyped_storage()]
        written = [time for start, end, time in parts if start < high and low < end]
        return Ready(latest([ready.time, *written]), ready.is_weights) if written else ready

    def time(self, tensor: Tensor) -> Time:
        """When a tensor is ready."""
        return self._of(tensor).time

    def inner(self, terms: int, *operands: Tensor) -> int:
        """Steps of an inner product of two tensors."""
        weighted = any(self._of(operand).is_weights for operand in operands)
        return terms if self.serial and not weighted else 1 + tree(terms)

    def _moved(self, call: Call, known: Sequence[Ready]) -> Sequence[Time]:
        """A copy or view of elements moves their times in the same way."""
        count = len(call.outputs)
        data, *rest = call.args
        listed = isinstance(data, list | tuple)
        joined = {self.time(tensor) for tensor in data} if listed else set()
        if len(joined) < 2 and all(isinstance(ready.time, int) for ready in known):
            return [latest(ready.time for ready in known)] * count
        if call.operator.overloadpacket in IN_PLACE_VIEWS:  # the tensor has its new shape already
            return [IN_PLACE_VIEWS[call.operator.overloadpacket](self.time(data), *rest)]
        if call.operator.overloadpacket in {aten.clone, aten._to_copy}:
            return [self.time(data)]
        filled = [
            spread(self.time(tensor), tensor.shape) for tensor in (data if listed else [data])
        ]
        if call.operator.overloadpacket in RESHAPES:  # times may be strided in another way
            moved = filled[0].reshape(call.outputs[0].shape)
        else:
            moved = call.operator(filled if listed else filled[0], *rest, **call.kwargs)
        parts = operands(moved if isinstance(moved, list | tuple) else (moved,))
        floor = latest(self.time(tensor) for tensor in operands(rest))
        return [later([compressed(part)], 0, part.shape, at_least=floor) for part in parts]


def extent(tensor: Tensor) -> tuple[int, int]:
    """The first and last place of a tensor in its storage."""
    low = int(tensor.storage_offset())
    spans = zip(tensor.shape, tensor.stride(), strict=True)
    return low, low + 1 + sum((size - 1) * stride for size, stride in spans)


def tree(terms: int) -> int:
    """Steps of a sum in which any two numbers may be added at once."""
    return (max(terms, 1) - 1).bit_length()


def latest(times: Iterable[Time]) -> int:
    """When everything is ready."""
    return max((time if isinstance(time, int) else int(time.max()) for time in times), default=0)


def spread(time: Time, shape: Sequence[int]) -> Tensor:
    """A time for every element of a shape, without memory for equal ones."""
    values = torch.tensor(time) if isinstance(time, int) else time
    return values.expand(shape)


def compressed(times: Tensor) -> Time:
    """The same times with constant axes expanded; a number if all are equal."""
    if times.numel() == 0:
        return 0
    for axis, (size, stride) in enumerate(zip(times.shape, times.stride(), strict=True)):
        first = times.narrow(axis, 0, 1)
        if size > 1 and stride != 0 and bool((times == first).all()):
            times = first.expand(times.shape)
    if all(
        size == 1 or stride == 0 for size, stride in zip(times.shape, times.stride(), strict=True)
    ):
        return int(times.flatten()[0] if times.dim() else times)
    return times


def narrowed(times: Tensor) -> Tensor:
    """Expanded axes with size 1."""
    for axis, stride in enumerate(times.stride()):
        times = times.narrow(axis, 0, 1) if stride == 0 and times.shape[axis] > 1 else times
    return times


def later(times: Sequence[Time], steps: int, shape: Sequence[int], at_least: int = 0) -> Time:
    """Element by element: when the last input is ready, and some steps more."""
    start = max([at_least, *(time for time in times if isinstance(time, int))])
    arrays = [narrowed(time) for time in times if isinstance(time, Tensor)]
    if not arrays:
        return start + steps
    total = arrays[0]
    for array in arrays[1:]:
        total = torch.maximum(total, array)
    return (total.clamp(min=start) + steps).expand(shape)


def over(time: Time, axes: Sequence[int]) -> Time:
    """When all elements along some axes are ready."""
    return time if isinstance(time, int) else narrowed(time).amax(tuple(axes), keepdim=True)


def matrix_product(depth: Depth, call: Call, offset: bool = False) -> Time:
    """mm, bmm, and addmm, baddbmm with an offset first."""
    left, right = call.args[1:3] if offset else call.args[:2]
    steps = depth.inner(left.shape[-1], left, right) + int(offset)
    times = [over(depth.time(left), [-1]), over(depth.time(right), [-2])]
    floor = latest([depth.time(call.args[0])]) if offset else 0
    return later(times, steps, call.outputs[0].shape, at_least=floor)


def convolution(depth: Depth, call: Call) -> Time:
    """An inner product over the channels and places under the kernel."""
    values, weight, bias = call.args[:3]
    transposed, groups = call.args[6], call.args[8]
    channels = weight.shape[0] // groups if transposed else weight.shape[1]
    steps = depth.inner(channels * math.prod(weight.shape[2:])) + int(bias is not None)
    return latest([depth.time(values), depth.time(weight)]) + steps


def attention(depth: Depth, call: Call) -> Time:
    """Scores, softmax and weighted sum in one kernel."""
    queries, keys, values = call.args[:3]
    mask = call.kwargs.get("attn_mask")
    places = tree(keys.shape[-2])
    steps = depth.inner(queries.shape[-1]) + (2 * places + 3) + (1 + places) + int(mask is not None)
    others = [keys, values] if mask is None else [keys, values, mask]
    floor = latest(depth.time(tensor) for tensor in others)
    return later([over(depth.time(queries), [-1])], steps, call.outputs[0].shape, at_least=floor)


def softmax(depth: Depth, call: Call) -> Time:
    """Maximum, difference, exponential, sum, quotient."""
    values, axis = call.args[:2]
    steps = 3 + 2 * tree(values.shape[axis])
    return later([over(depth.time(values), [axis])], steps, values.shape)


def layer_norm(depth: Depth, call: Call) -> Time:
    """Mean and variance over the features, then five elementwise steps."""
    values, shape = call.args[:2]
    steps = 5 + 2 * tree(math.prod(shape))
    return later([over(depth.time(values), range(-len(shape), 0))], steps, values.shape)


def reduction(depth: Depth, call: Call) -> Time:
    """A sum, mean or norm over some axes, or over all of them."""
    values, packet = call.args[0], call.operator.overloadpacket
    terms = values.numel() // max(1, call.outputs[0].numel())
    start = latest([depth.time(values)])
    if packet is aten.linalg_vector_norm:  # the square root of an inner product
        return start + depth.inner(terms) + 1
    return start + tree(terms) + int(packet is aten.mean)


def lookup(depth: Depth, call: Call) -> Time:
    """One step."""
    return latest(depth.time(tensor) for tensor in call.inputs) + 1


def lstm(depth: Depth, call: Call) -> Time:
    """oneDNN's LSTM layer, T B J: the input product of all steps, then one step after another."""
    values, input_weight, state_weight = call.args[:3]
    reverse, time = call.args[7], depth.time(values)
    length = values.shape[0]
    reads = spread(time, values.shape).amax((1, 2)).tolist()
    enters = depth.inner(input_weight.shape[1]) + 1
    repeats = depth.inner(state_weight.shape[1])
    state, states = latest(depth.time(tensor) for tensor in operands(call.args[1:])), []
    for read in reversed(reads) if reverse else reads:
        state = max(state + repeats, read + enters) + GATES
        states.append(state)
    ordered = torch.tensor(states[::-1] if reverse else states)
    return ordered.view(length, 1, 1).expand(call.outputs[0].shape)


def ctc(depth: Depth, call: Call) -> Time:
    """The forward variables of a frame follow from those of the frame before in three steps."""
    frames: Tensor = call.args[0]
    return latest([depth.time(frames)]) + 3 * frames.shape[0]


RULES: dict[Any, Callable[[Depth, Call], Time]] = {
    aten.mm: matrix_product,
    aten.bmm: matrix_product,
    aten.addmm: lambda depth, call: matrix_product(depth, call, offset=True),
    aten.baddbmm: lambda depth, call: matrix_product(depth, call, offset=True),
    aten.convolution: convolution,
    aten._scaled_dot_product_flash_attention_for_cpu: attention,
    aten._softmax: softmax,
    aten._log_softmax: softmax,
    aten.native_layer_norm: layer_norm,
    aten._fused_rms_norm: layer_norm,
    aten.mkldnn_rnn_layer: lstm,
    aten._ctc_loss: ctc,
    aten.embedding: lookup,
    aten.sum: reduction,
    aten.mean: reduction,
    aten.linalg_vector_norm: reduction,
}
