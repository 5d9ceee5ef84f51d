"""Say what this machine has and whether Harken will work on it."""

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
import time

EPILOG = """examples:
  harken doctor
  harken doctor --json
"""

NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "einops", "jaxtyping", "rich")


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print facts; exit code 1 where something that is needed is missing."""
    from harken.cli.output import result_json, table
    from harken.version import __version__

    facts: dict[str, str] = {
        "harken": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "free disk": f"{shutil.disk_usage('.').free / 2**30:.0f} GiB here",
    }
    missing = []
    for name in NEEDED:
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[name] = "missing: pip install harken"
            missing.append(name)
    if "torch" not in missing:
        facts |= _torch_facts()
    if options.json:
        result_json({"ready": not missing, "facts": facts})
    else:
        table(("what", "found"), list(facts.items()), text_columns=range(2))
    return 1 if missing else 0


def _torch_facts() -> dict[str, str]:
    import torch

    from harken.training.runtime import choose_device, prepare

    device = choose_device("auto")
    prepare(device)
    side, rounds = 1024, 8
    matrix = torch.randn(side, side, device=device)
    matrix @ matrix
    started = time.perf_counter()
    for _ in range(rounds):
        product = matrix @ matrix
    product.sum().item()  # waits for a device that works behind our back
    rate = 2 * side**3 * rounds / (time.perf_counter() - started) / 1e9
    return {
        "device": str(device),
        "threads": str(torch.get_num_threads()),
        "float32 products": f"{rate:.0f} GFLOP/s now, on this machine as loaded as it is",
        "torch.compile": "not needed; off unless training.machine.compile = true",
        "interpreter": sys.executable,
    }
