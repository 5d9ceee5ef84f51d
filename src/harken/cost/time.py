"""Time of a training step: predicted from its kernels, and measured.

A trace gives the kernels of a step with the shapes, strides and types of their arguments. Each
distinct kernel is run on random tensors on this machine, a few times, and its median is added up as
often as the kernel occurs. Not included: Python, autograd's bookkeeping and the effect of caches
between kernels.
"""

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from harken.cost.memory import footprint
from harken.cost.rules import is_view
from harken.cost.step import CPU
from harken.cost.trace import Call, is_fake
from harken.cost.workload import Workload, trace_workload

SHORTEST = 0.002  # seconds of one measurement
ROUNDS = 3  # measurements, of which the median counts
STEPS, WARMUP = 5, 2


class Placeholder(NamedTuple):
    """A tensor argument without its data; integers are drawn between `low` and `high`."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    low: int = 0
    high: int = 0

    def tensor(self) -> Tensor:
        """A tensor with this layout and random elements."""
        spans = zip(self.shape, self.stride, strict=True)
        size = 0 if 0 in self.shape else 1 + sum((length - 1) * step for length, step in spans)
        if self.dtype.is_floating_point or self.dtype.is_complex:
            data = torch.randn(size, dtype=self.dtype)
        elif self.dtype == torch.bool:
            data = torch.rand(size) < (self.low + self.high) / 2
        else:
            data = torch.randint(self.low, self.high + 1, (size,)).to(self.dtype)
        return data.as_strided(self.shape, self.stride)


class Kernels:
    """An observer that counts distinct kernels."""

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()

    def observe(self, call: Call) -> None:
        if not is_view(call):
            leaves, structure = tree_flatten((call.args, call.kwargs))
            self.counts[call.operator, tuple(map(placeholder, leaves)), structure] += 1

    def seconds(self) -> float:
        """Time of all kernels together, each distinct one measured now."""
        return sum(count * kernel_seconds(*kernel) for kernel, count in self.counts.items())


def placeholder(value: Any) -> Any:
    """A hashable description of an argument."""
    if not isinstance(value, Tensor):
        return value if value.__hash__ else str(value)
    is_unknown = is_fake(value) or value.numel() == 0
    bounds = () if is_unknown else (int(bound) for bound in value.aminmax())
    return Placeholder(tuple(value.shape), value.stride(), value.dtype, *bounds)


def kernel_seconds(operator: Any, leaves: tuple[Any, ...], structure: Any) -> float:
    """Median time of one kernel on random arguments."""
    tensors = [leaf.tensor() if isinstance(leaf, Placeholder) else leaf for leaf in leaves]
    args, kwargs = tree_unflatten(tensors, structure)
    with torch.no_grad():
        return median_seconds(lambda: operator(*args, **kwargs))


def median_seconds(work: Callable[[], object]) -> float:
    """The median of some rounds, each long enough for the clock."""
    work()
    started = time.perf_counter()
    work()
    once = max(time.perf_counter() - started, 1e-7)
    repeats = max(1, math.ceil(SHORTEST / once))
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        rounds.append((time.perf_counter() - started) / repeats)
    return statistics.median(rounds)


def predicted_seconds(step: Workload) -> float:
    """Time of one training step, from its kernels."""
    kernels = Kernels()
    trace_workload(step, [kernels])
    return kernels.seconds()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A training step as it ran on this machine."""

    seconds: float  # median of several steps
    kept: int  # bytes after the forward pass, weights not included
    peak: int  # the most bytes at any time, weights and gradients not included


def measured(step: Workload, steps: int = STEPS) -> Measured:
    """Run some training steps on a random batch."""
    model, batch, stage = step.build(), step.batch(), step.stage
    batch.loss(model, CPU).backward()  # type: ignore[no-untyped-call]
    memory = footprint(lambda: batch.loss(model, CPU))  # gradients exist and stay
    optimizers = stage.optimizer.build(model)
    seconds = []
    for _ in range(WARMUP + steps):
        started = time.perf_counter()
        loss = batch.loss(model, CPU) / max(batch.counted, 1)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), stage.max_grad_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - started)
    return Measured(seconds=statistics.median(seconds[WARMUP:]), kept=memory.kept, peak=memory.peak)
