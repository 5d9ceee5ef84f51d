"""What the machine offers and how to set it up: device, precision, allocator, denormal numbers.

Every setting here changes speed or precision, never what is learnt; each is left alone where the
platform lacks it.
"""

import ctypes
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from harken.config.spelling import require_choice
from harken.errors import UserError

Device = Literal["auto", "cpu", "cuda", "mps"]

# glibc's numbers for mallopt. All blocks of a training step stay in the heap instead of being given
# back to the system and faulted in again at every step. A threshold alone would not do: glibc takes
# none above 32 MiB, and the scores of a wide vocabulary are larger.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
TRIM_ABOVE = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeConfig:
    """Where and how to compute."""

    device: Device = "auto"
    # bfloat16 by autocast; an LSTM stays in float32 where the CPU has no such kernel
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False  # needs a C++ compiler on a CPU, and gained nothing there


def choose_device(wanted: str) -> torch.device:
    """Return the requested device, or the fastest one present for "auto"."""
    require_choice("device", wanted, get_args(Device))
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        return torch.device(next(name for name, there in present.items() if there))
    if not present[wanted]:
        found = ", ".join(name for name, there in present.items() if there)
        raise UserError(
            f"device {wanted!r} is not available (this machine has {found})",
            fix="use device 'auto', or install a PyTorch build that supports the device",
        )
    return torch.device(wanted)


def prepare(device: torch.device) -> None:
    """Settings of the whole process; harmless to repeat."""
    torch.set_flush_denormal(True)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    if sys.platform == "linux":
        allocator = ctypes.CDLL(None)
        if hasattr(allocator, "gnu_get_libc_version"):
            allocator.mallopt(M_MMAP_MAX, 0)
            allocator.mallopt(M_TRIM_THRESHOLD, TRIM_ABOVE)


def mixed_precision(config: RuntimeConfig, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a loss is computed."""
    if config.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
