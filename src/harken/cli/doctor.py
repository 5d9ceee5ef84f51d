"""`harken doctor`: print versions, device and speed of this machine."""

import argparse
import os
import platform
import shutil
import sys
import time
from importlib.metadata import PackageNotFoundError, version

from harken.cli.output import print_json_or_table
from harken.version import __version__

PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "einops", "jaxtyping", "rich")


def run(options: argparse.Namespace) -> int:
    """Print the table, and return 1 if one of `PACKAGES` is missing."""
    facts = {
        "harken": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "free disk": f"{shutil.disk_usage('.').free / 2**30:.0f} GiB in this folder",
    }
    missing = []
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "missing: pip install harken"
            missing.append(name)
    if "torch" not in missing:
        facts |= _torch_facts()
    record, rows = {"ready": not missing, "facts": facts}, list(facts.items())
    print_json_or_table(options, record, ("item", "value"), rows, text_columns=(0, 1))
    return 1 if missing else 0


def _torch_facts() -> dict[str, str]:
    import torch

    from harken.training.runtime import choose_device, configure_process, has_bfloat16

    device = choose_device("auto")
    configure_process(device)

    def rate(dtype: torch.dtype) -> str:
        side, rounds = 1024, 8
        matrix = torch.randn(side, side, device=device).to(dtype)
        matrix @ matrix
        started = time.perf_counter()
        for _ in range(rounds):
            product = matrix @ matrix
        product.sum().item()  # wait for the device
        operations = 2 * side**3 * rounds
        return f"{operations / (time.perf_counter() - started) / 1e9:.0f} GFLOP/s"

    slow = 'no instructions for it: train with precision "float32"'
    return {
        "device": str(device),
        "threads": str(torch.get_num_threads()),
        "float32 matmul": f"{rate(torch.float32)} under the current load",
        "bfloat16 matmul": rate(torch.bfloat16) if has_bfloat16(device) else slow,
        "torch.compile": "off unless training.runtime.compile = true",
        "interpreter": sys.executable,
    }
