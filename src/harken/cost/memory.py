"""Memory of a training step as PyTorch's allocator saw it: what it gave out and had not got back.

Every block counts, those inside fused kernels too; weights and gradients that were there before the
step do not.
"""

import os
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

from torch import Tensor
from torch.profiler import ProfilerActivity, profile


class Footprint(NamedTuple):
    """Bytes above what was held before the step."""

    kept: int  # when the forward pass is done
    peak: int  # at any time


def footprint(forward: Callable[[], Tensor]) -> Footprint:
    """Of a forward pass and the backward pass from its loss."""
    losses: list[Tensor] = []
    there = held(lambda: losses.append(forward()))
    back = held(lambda: losses[0].backward())  # type: ignore[no-untyped-call]
    return Footprint(kept=there[-1], peak=max(*there, *(there[-1] + one for one in back)))


def held(work: Callable[[], object]) -> list[int]:
    """Bytes after each time that some were given out or came back."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it tells people when it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    recorded: Any = seen.profiler
    blocks = [one for one in recorded.kineto_results.events() if one.name() == "[memory]"]
    blocks.sort(key=lambda one: one.start_ns())
    return list(accumulate((one.nbytes() for one in blocks), initial=0))
