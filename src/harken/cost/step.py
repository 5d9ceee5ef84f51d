"""Cost of one training step of any PyTorch module, from one trace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harken.cost.depth import Depth
from harken.cost.memory import AllocatedMemory
from harken.cost.rules import WorkCounter, byte_size
from harken.cost.trace import Call, FakeFloats, Observer, tensors_in
from harken.models.huggingface import read_text_folder

aten = torch.ops.aten
Model = TypeVar("Model", bound=nn.Module)
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Cost of one training step, exact for the traced sizes."""

    parameters: int  # number of parameters
    forward: int  # floating-point operations of the forward pass, two per multiply-add
    step: int  # floating-point operations of forward and backward pass
    traffic: int  # bytes read and written by forward pass, backward pass and optimizer
    state_bytes: int  # weights, gradients and optimizer state
    saved_bytes: int  # saved by the forward pass for the backward pass
    peak: int  # maximum bytes in addition to `state_bytes`
    depth: int  # longest chain of dependent steps of the forward pass
    serial: int  # depth if inner products are summed one term at a time

    @property
    def flops(self) -> int:
        """Floating-point operations of forward and backward pass."""
        return self.step


def cost(module: nn.Module | str | Path, *inputs: Any, **keywords: Any) -> Cost:
    """Count operations, memory and depth of a training step of `module(*inputs, **keywords)`.

    The module may also be a Hugging Face folder. It is traced on tensors without data and is not
    changed. Tracing time depends mainly on the number of operations, not on sizes. The backward
    pass starts at the sum of the first floating-point tensor that the module returns, which is the
    loss of a `transformers` model called with `labels`. `state_bytes` has no optimizer state.

        harken.cost(nn.LSTM(64, 64, 2, batch_first=True), torch.randn(4, 20, 64)).flops
    """
    model = read_text_folder(Path(module))[1] if isinstance(module, str | Path) else module

    def loss(traced: nn.Module) -> Tensor:
        outputs = traced(*inputs, **keywords)
        floats = [output for output in tensors_in(outputs) if output.is_floating_point()]
        return floats[0].sum() if floats else torch.zeros(())

    return trace_step(lambda mode: mode.copy(model), loss)


def trace_step(
    build: Callable[[FakeFloats], Model],
    loss: Callable[[Model], Any],
    build_optimizers: Callable[[nn.Module], Sequence[Optimizer]] | None = None,
    observers: Sequence[Observer] = (),
    *,
    exact: bool = True,
) -> Cost:
    """Trace a training step: forward pass, backward pass and optimizers.

    `observers` receive its operations, without those that `AccumulationFilter` leaves out. With
    `exact=False` (for formulas), workspaces of kernels have no padding, and depths are 0.
    """
    memory, work, depth, serial = AllocatedMemory(), WorkCounter(), Depth(), Depth(serial=True)
    with FakeFloats(aligned=exact) as mode:
        model = build(mode)
        parameters = [weight for weight in model.parameters() if weight.requires_grad]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        step_observer = AccumulationFilter([work, *observers], weights=parameters)
        mode.observers = (
            (memory, step_observer, depth, serial) if exact else (memory, step_observer)
        )
        value = loss(model)
        saved_bytes, forward = memory.allocated, work.flops
        mode.observers = (memory, step_observer)
        if torch.is_grad_enabled() and value.requires_grad:
            value.backward()
        step_flops, optimizer_bytes = work.flops, 0
        mode.observers = (step_observer,)
        optimizers = build_optimizers(model) if build_optimizers is not None else ()
        for optimizer in optimizers:
            mode.observers = ()
            optimizer.step()  # allocates the state
            mode.observers = (step_observer,)
            optimizer.step()
            optimizer_bytes += sum(map(byte_size, tensors_in(list(optimizer.state.values()))))
    return Cost(
        parameters=sum(weight.numel() for weight in model.parameters()),
        forward=forward,
        step=step_flops,
        traffic=work.traffic,
        state_bytes=sum(map(byte_size, [*model.parameters(), *parameters])) + optimizer_bytes,
        saved_bytes=saved_bytes,
        peak=memory.peak,
        depth=depth.total,
        serial=serial.total,
    )


def trace_forward(build: Callable[[FakeFloats], Model], forward: Callable[[Model], Any]) -> Cost:
    """Trace a forward pass without gradients."""
    with torch.no_grad():
        return trace_step(build, forward)


class AccumulationFilter:
    """Pass on all calls except gradient accumulation: training starts a step with `grad=None`."""

    def __init__(self, observers: Sequence[Observer], weights: Sequence[Tensor]) -> None:
        self._observers = observers
        self._gradients = {
            weight.grad.untyped_storage()._cdata for weight in weights if weight.grad is not None
        }

    def observe(self, call: Call) -> None:
        is_sum = call.operator.overloadpacket is aten.add_
        if is_sum and call.args[0].untyped_storage()._cdata in self._gradients:
            return
        for observer in self._observers:
            observer.observe(call)
