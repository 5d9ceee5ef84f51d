"""Device, precision, threads, memory allocator and denormal numbers."""

import ctypes
import platform
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from harken.config import bounded
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
    """Device, precision, compilation and the reduction of gradients over processes."""

    device: Device = "auto"  # device to train on; "auto" is the fastest one available
    # "bfloat16" uses autocast; it is an error on a device without bfloat16 instructions (see
    # `harken doctor`), where it would be slower and less precise than float32
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False  # use torch.compile, which needs a C++ compiler on a CPU
    # CPU threads per process; 0 divides the cores among the processes of a machine. The number of
    # threads changes the last bits of the weights, so a resumed run keeps it
    threads: int = bounded(0, at_least=0, at_most=4096)
    # sum of gradients over micro-batches: "exact" gives the same bits for any number of processes,
    # "fast" is DistributedDataParallel, "sharded" is FSDP2, which divides the model among processes
    reduction: Literal["exact", "fast", "sharded"] = "exact"


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


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "mps":
        return True
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not has_onednn or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    # On x86, oneDNN also supports bfloat16 with AVX-512 alone, by converting it to float32.
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    amx, avx = torch.cpu._is_amx_tile_supported, torch.cpu._is_avx512_bf16_supported
    return not is_x86 or amx() or avx()


def check_precision(config: RuntimeConfig, device: torch.device) -> None:
    """Raise `UserError` for bfloat16 without hardware support.

    This is an error instead of a warning, because such training gains nothing: it is slower, up to
    50 times on a CPU, less precise, and not smaller, since autocast keeps the weights in float32.
    """
    if config.precision == "bfloat16" and not has_bfloat16(device):
        raise UserError(
            f'training.runtime.precision = "bfloat16": this {device.type} device has no bfloat16 '
            "instructions, so it would be slower than float32",
            fix='set training.runtime.precision = "float32"',
        )


def configure_process(device: torch.device) -> None:
    """Apply the settings that hold for the whole process."""
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
