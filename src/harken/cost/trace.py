"""Run a model without computing it: floats are fake, integers and booleans are real.

`FakeFloats` intercepts every operation that PyTorch dispatches and passes it to observers.
Floating-point tensors have a shape and a storage size but no data (`FakeTensor`). Integer and
boolean tensors are computed, so masks, boolean indexing, CTC lengths and loops over them behave as
in training. Branching on the value of a floating-point tensor is not supported: it reads as 1.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map_only

from harken.errors import UserError

aten = torch.ops.aten
MAX_OPERATIONS = 200_000  # per trace, about a minute
PAGE = 4096
MAX_REAL = 1 << 24  # larger integer tensors are fake as well
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
DEVICE = torch.ops.prim.device.default


def packets(names: str) -> set[Any]:
    """Return the operators (overload packets) with these names."""
    return {getattr(aten, name) for name in names.split()}


class Call(NamedTuple):
    """One operation. Observers must not keep its tensors, which would extend their lifetime."""

    operator: torch._ops.OpOverload[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@runtime_checkable
class Observer(Protocol):
    """Receives every operation in order."""

    def observe(self, call: Call) -> None: ...


class FakeFloats(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside `with FakeFloats(observers):`, new floating-point tensors are fake."""

    def __init__(self, observers: Sequence[Observer] = (), *, aligned: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observers = tuple(observers)
        self.aligned = aligned  # whether kernels round up the sizes of their workspaces
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._operations = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping would import torch._dynamo, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is DEVICE:
            return args[0].fake_device
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            raise UserError(
                f"cost: a step has more than {MAX_OPERATIONS:,} operations, which is too many to "
                "trace (a recurrent layer has several per token)",
                fix="choose a shorter length or fewer layers; the cost of an RNN is linear in both",
            )
        kwargs = kwargs or {}
        inputs = tensors_in((args, kwargs))
        if any(is_fake(tensor) for tensor in inputs):
            result = self._run_fake(func, args, kwargs)
        elif inputs:  # integers alone; floats that are computed from them become fake
            result = tree_map_only(Tensor, self._hide_floats, func(*args, **kwargs))
        else:
            result = self._create(func, args, kwargs)
        call = Call(func, args, kwargs, inputs, outputs=tensors_in(result))
        for observer in self.observers:
            observer.observe(call)
        return result

    def _run_fake(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is aten._local_scalar_dense.default:
            return 1.0
        if func.overloadpacket in INDEXING:
            positions = [position for index in args[1] for position in integer_indices(index)]
            args = (args[0], positions, *args[2:])
        fake_args, fake_kwargs = tree_map_only(Tensor, self.to_fake, (args, kwargs))
        with self._fake:
            if func in SHAPES:
                result = SHAPES[func](self, *fake_args)
            else:
                result = func(*fake_args, **fake_kwargs)
        if not func._schema.is_mutable:
            return tree_map_only(Tensor, with_real_integers, result)
        pairs = zip(tensors_in((fake_args, fake_kwargs)), tensors_in((args, kwargs)), strict=True)
        originals = {id(fake): original for fake, original in pairs}
        return tree_map_only(Tensor, lambda output: originals.get(id(output), output), result)

    def _create(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Create a tensor, which is fake if it is large or holds floats."""
        with self._fake:
            result = func(*args, **kwargs)
        is_integer = not isinstance(result, Tensor) or not is_float(result)
        if is_integer and sum(tensor.numel() for tensor in tensors_in(result)) <= MAX_REAL:
            return func(*args, **kwargs)
        return result

    def _hide_floats(self, result: Tensor) -> Tensor:
        return self.to_fake(result) if is_float(result) else result

    def to_fake(self, tensor: Tensor) -> Tensor:
        return tensor if isinstance(tensor, FakeTensor) else self._fake.from_tensor(tensor)

    def copy(self, module: nn.Module) -> nn.Module:
        """Copy a module with fake floating-point parameters and buffers."""
        tensors = {*module.parameters(), *module.buffers()}
        fakes = {id(tensor): self.to_fake(tensor) for tensor in tensors if is_fake(tensor)}
        with _disable_current_modes():
            return copy.deepcopy(module, fakes)


def is_float(tensor: Tensor) -> bool:
    """Return whether a tensor holds real or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_fake(tensor: Tensor) -> bool:
    """Return whether a tensor has no data in a trace."""
    return is_float(tensor) or isinstance(tensor, FakeTensor)


def tensors_in(tree: Any) -> tuple[Tensor, ...]:
    """Return all tensors of a nested structure, such as the arguments of an operation."""
    return tuple(leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor))


def integer_indices(index: Tensor | None) -> Iterator[Tensor | None]:
    """Replace a boolean index by integer indices."""
    if index is not None and index.dtype == torch.bool and not isinstance(index, FakeTensor):
        yield from index.nonzero().unbind(1)
    else:
        yield index


def with_real_integers(output: Tensor) -> Tensor:
    """Replace integers computed from floats, which are unknown, by zeros."""
    is_workspace = output.dtype == torch.uint8
    if is_float(output) or is_workspace or output.numel() > MAX_REAL:
        return output
    return torch.zeros(output.shape, dtype=output.dtype)


def _ctc(mode: FakeFloats, log_probs: Tensor, targets: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return the losses, and the forward variables (batch, time, 2 * target length + 1)."""
    time, batch = log_probs.shape[:2]
    return log_probs.new_empty(batch), log_probs.new_empty(batch, time, 2 * targets.shape[1] + 1)


def _lstm(mode: FakeFloats, values: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Return outputs, states, and oneDNN's workspace for the backward pass of one layer.

    The sections of the workspace are those of oneDNN 3 (rnn_utils.cpp): gates, three copies of the
    states as wide as the wider of input and state, two of cells and one of outputs.
    """
    (time, batch, width), hidden = values.shape, rest[9]
    row = padded_row if mode.aligned else int
    wide = row(max(width, hidden))
    sections = [time * row(4 * hidden), *[2 * (time + 1) * wide] * 3]
    sections += [2 * (time + 1) * hidden] * 2 + [time * row(hidden)]
    page = PAGE if mode.aligned else 1
    workspace = sum(-(-4 * batch * section // page) * page for section in sections)
    outputs = values.new_empty(time, batch, hidden)
    states = [torch.empty_like(state) for state in rest[4:6]]
    return outputs, *states, values.new_empty(workspace, dtype=torch.uint8)


def padded_row(width: int) -> int:
    """Return oneDNN's row length: whole cache lines of 16 floats, but not a multiple of 256."""
    padded = -(-width // 16) * 16
    return padded if padded % 256 else padded + 16


SHAPES: dict[Any, Callable[..., Any]] = {
    aten._ctc_loss.Tensor: _ctc,
    aten.mkldnn_rnn_layer.default: _lstm,
}
"""Shape functions that PyTorch lacks, or in which it leaves out a workspace."""
