"""Refuse a model that cannot fit into memory, before any of it is allocated.

The model is built on PyTorch's `meta` device, where a tensor has a shape and no data, and the bytes
of its parameters and buffers are compared with the memory of the machine.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from harken.errors import UserError

PREDICTING = 4  # bytes per parameter: float32 weights
TRAINING = 12  # weights, gradients and one moment (AdamW has two, SGD without momentum none)
NO_LIMIT = 2**40  # bytes, where the system does not report its memory
CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container

INITIALIZERS = {"normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_", "orthogonal_"}

Model = TypeVar("Model", bound=nn.Module)


def check_model_size(
    build: Callable[[], Model], where: str, *, bytes_per_parameter: int, device: torch.device
) -> Model:
    """Return the model with shapes and no data; `UserError` if it cannot fit into memory."""
    try:
        with torch.device("meta"), SkipInitialization():
            model = build()
    except ValueError as error:  # such as heads that do not divide the width
        raise UserError(f"{where}: [model]: {error}", fix="change [model]") from error
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise UserError(
            f"{where}: the sizes in [model] are too large for any tensor (expected a model that "
            "fits into memory)",
            fix="reduce model.width, or the largest other size in [model]",
        ) from error
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    count = sum(tensor.numel() for tensor in tensors.values())
    required, available = count * bytes_per_parameter, memory_bytes(device)
    if required > available:
        largest = max(tensors, key=lambda name: tensors[name].numel())
        raise UserError(
            f"{where}: [model] has {count:,} parameters (with buffers), which take at least "
            f"{required / 2**30:,.0f} GiB (expected at most {available / 2**30:,.1f} GiB, the "
            f"memory available on {device.type}); the largest is {largest!r} of shape "
            f"{list(tensors[largest].shape)}",
            fix="reduce model.width, model.layers or another size in [model]",
        )
    return model


class SkipInitialization(TorchFunctionMode):
    """Leave random weights uninitialized: on `meta`, or because stored weights replace them."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in INITIALIZERS:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def memory_bytes(device: torch.device) -> int:
    """Return the bytes a process can use: the minimum of machine, limits, container and GPU."""
    limits = [NO_LIMIT]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if sys.platform != "win32":
        import resource

        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            soft, _ = resource.getrlimit(kind)
            limits += [] if soft == resource.RLIM_INFINITY else [soft]
    if CGROUP.is_file() and (text := CGROUP.read_text().strip()).isdecimal():
        limits.append(int(text))
    if device.type == "cuda":
        limits.append(torch.cuda.get_device_properties(device).total_memory)
    return min(limits)
