"""Bytes allocated during a training step: counted in a trace, or measured in a run.

In a trace every storage counts from its allocation to its release, as in PyTorch's allocator.
Buffers that a kernel frees before it returns are not counted, such as oneDNN's copies of weights.
"""

import os
import weakref
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from harken.cost.trace import Call


class AllocatedMemory:
    """An observer of allocations: bytes that are allocated now, and their maximum so far."""

    def __init__(self) -> None:
        self.allocated = self.peak = 0
        self._storages: set[int] = set()

    def observe(self, call: Call) -> None:
        if call.operator.is_view or call.operator._schema.is_mutable:
            return
        for output in call.outputs:
            storage = output.untyped_storage()
            address, size = storage._cdata, storage.nbytes()
            if address not in self._storages:
                self._storages.add(address)
                self.allocated += size
                weakref.finalize(storage, self._release, address, size)
        self.peak = max(self.peak, self.allocated)

    def _release(self, address: int, size: int) -> None:
        self._storages.discard(address)
        self.allocated -= size


class Footprint(NamedTuple):
    """Bytes in addition to those allocated before the step."""

    saved_bytes: int  # still allocated after the forward pass
    peak: int  # maximum during both passes


def footprint(forward: Callable[[], Tensor]) -> Footprint:
    """Measure a forward pass and the backward pass from its loss."""
    losses: list[Tensor] = []
    forward_bytes = allocated_bytes(lambda: losses.append(forward()))
    backward_bytes = allocated_bytes(lambda: losses[0].backward())  # type: ignore[no-untyped-call]
    saved = forward_bytes[-1]
    return Footprint(saved_bytes=saved, peak=max(*forward_bytes, saved + max(backward_bytes)))


def allocated_bytes(work: Callable[[], object]) -> list[int]:
    """Return the net bytes that `work` has allocated: 0, then after each (de)allocation."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler logs its start
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    profiler: Any = profiled.profiler
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return list(accumulate((event.nbytes() for event in events), initial=0))
