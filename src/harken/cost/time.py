"""Time of a training step: predicted from its kernels, and measured.

Each distinct kernel of a trace is run on random tensors with its shapes, strides and types. Its
median time is multiplied by its number of calls. The sum does not include Python, autograd's
bookkeeping or the effect of caches between kernels.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.benchmark import Timer

from harken.cost.memory import Footprint, footprint
from harken.cost.rules import has_no_traffic
from harken.cost.step import CPU
from harken.cost.trace import Call, is_fake
from harken.cost.workload import Workload, trace_workload

MIN_SECONDS = 0.006  # of measurement per kernel
STEPS, WARMUP = 5, 2  # measured steps, and steps before them


class Placeholder(NamedTuple):
    """A tensor argument without its data, and the range of its integers or booleans."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    low: int = 0
    high: int = 0

    def tensor(self) -> Tensor:
        """Return a tensor with this layout and random elements."""
        axes = zip(self.shape, self.stride, strict=True)
        size = 0 if 0 in self.shape else 1 + sum((length - 1) * step for length, step in axes)
        if self.dtype.is_floating_point or self.dtype.is_complex:
            data = torch.randn(size, dtype=self.dtype)
        elif self.dtype == torch.bool:
            data = torch.rand(size) < (self.low + self.high) / 2
        else:
            data = torch.randint(self.low, self.high + 1, (size,)).to(self.dtype)
        return data.as_strided(self.shape, self.stride)


class KernelCounter:
    """An observer that counts the calls of each distinct kernel."""

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()

    def observe(self, call: Call) -> None:
        if not has_no_traffic(call):
            leaves, structure = tree_flatten((call.args, call.kwargs))
            self.counts[call.operator, tuple(map(hashable_argument, leaves)), structure] += 1

    def seconds(self) -> float:
        """Measure each distinct kernel and return the time of all calls."""
        total = 0.0
        for (operator, leaves, structure), count in self.counts.items():
            values = [leaf.tensor() if isinstance(leaf, Placeholder) else leaf for leaf in leaves]
            args, kwargs = tree_unflatten(values, structure)
            with torch.no_grad():
                total += count * median_seconds(partial(operator, *args, **kwargs))
        return total


def hashable_argument(value: Any) -> Any:
    """Return a `Placeholder` for a tensor; text for a value that cannot be hashed."""
    if not isinstance(value, Tensor):
        return value if value.__hash__ else str(value)
    is_unknown = is_fake(value) or value.numel() == 0
    bounds = () if is_unknown else (int(bound) for bound in value.aminmax())
    return Placeholder(tuple(value.shape), value.stride(), value.dtype, *bounds)


def median_seconds(work: Callable[[], object]) -> float:
    """Return the median time of a call; fast calls are repeated for the clock's resolution."""
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=MIN_SECONDS).median


def predict_seconds(workload: Workload) -> float:
    """Predict the time of one training step from its kernels."""
    kernels = KernelCounter()
    trace_workload(workload, [kernels])
    return kernels.seconds()


def measure_step(workload: Workload) -> tuple[float, Footprint]:
    """Return the median seconds and the memory of training steps on a random batch."""
    model, batch, stage = workload.build(), workload.batch(), workload.stage
    batch.loss(model, CPU).backward()  # type: ignore[no-untyped-call]
    memory = footprint(lambda: batch.loss(model, CPU))  # without allocating gradients again
    optimizers = stage.optimizer.build(model)
    seconds = []
    for _ in range(WARMUP + STEPS):
        started = time.perf_counter()
        loss = batch.loss(model, CPU) / max(batch.num_targets, 1)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), stage.max_grad_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARMUP:]), memory
