"""Device, precision, memory allocator and denormal numbers; skipped where not supported."""

import ctypes
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from harken.config.spelling import require_choice
from harken.errors import UserError

Device = Literal["auto", "cpu", "cuda", "mps"]

# Parameters of glibc's mallopt: memory stays in the heap instead of being returned to the system
# and faulted in again at every step. M_MMAP_THRESHOLD is not enough: its maximum of 32 MiB is
# smaller than logits over a large vocabulary.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
TRIM_ABOVE = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeConfig:
    """Device, precision and compilation."""

    device: Device = "auto"  # device to train on; "auto" is the fastest one available
    # "bfloat16" uses autocast; an LSTM stays in float32 if the CPU has no bfloat16 kernel
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False  # use torch.compile, which needs a C++ compiler on a CPU


def choose_device(name: str) -> torch.device:
    """Return the requested device, or the fastest one present for "auto"."""
    require_choice("device", name, get_args(Device))
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    available = [*["cuda"] * cuda, *["mps"] * mps, "cpu"]
    if name != "auto" and name not in available:
        raise UserError(
            f"device {name!r} is not available (this machine has {', '.join(available)})",
            fix="use device 'auto', or install a PyTorch build that supports the device",
        )
    return torch.device(available[0] if name == "auto" else name)


def prepare(device: torch.device) -> None:
    """Apply the settings of the whole process; may be called repeatedly."""
    torch.set_flush_denormal(True)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    if sys.platform == "linux":
        allocator = ctypes.CDLL(None)
        if hasattr(allocator, "gnu_get_libc_version"):
            allocator.mallopt(M_MMAP_MAX, 0)
            allocator.mallopt(M_TRIM_THRESHOLD, TRIM_ABOVE)


def mixed_precision(config: RuntimeConfig, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which losses are computed."""
    if config.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
