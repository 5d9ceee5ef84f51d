"""Compare three settings of glibc's memory allocator in a training step: time and peak memory.

    python benchmarks/allocator.py

    default     glibc's defaults
    threshold   the largest M_MMAP_THRESHOLD that glibc accepts, 32 MiB: larger blocks are mapped,
                returned to the system after each use, and their pages are faulted in again
    heap        Harken's setting (`training/runtime.py`): all blocks stay in the heap

Each measurement is a separate process; the settings alternate. The benchmark prints a row per
recipe: time per step and peak resident memory of `default` and `threshold`, divided by those of
`heap` (above 1: `heap` is better), the median of `--rounds` rounds. Linux with glibc only.
"""

import argparse
import ctypes
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from harken.cost.time import measured
from harken.cost.workload import workload
from harken.recipe import load_recipe
from harken.training.runtime import M_TRIM_THRESHOLD, TRIM_ABOVE, configure_process

RECIPES = Path(__file__).parents[1] / "recipes"
LENGTHS = {"lm": 128, "answer": 64, "tag": 24, "fill": 24, "translate": 32, "transcribe": 400}
LENGTHS |= {"caption": 16}  # tokens or frames
SETTINGS = ("default", "threshold", "heap")
M_MMAP_THRESHOLD = -3  # parameter of mallopt
MAX_THRESHOLD = 32 << 20


def measure_step(name: str, setting: str) -> dict[str, float]:
    """Set up the allocator of this process, then measure a training step of a recipe."""
    if setting == "threshold":
        allocator = ctypes.CDLL(None)
        allocator.mallopt(M_MMAP_THRESHOLD, MAX_THRESHOLD)
        allocator.mallopt(M_TRIM_THRESHOLD, TRIM_ABOVE)
    elif setting == "heap":
        configure_process(torch.device("cpu"))
    torch.set_flush_denormal(True)
    recipe = load_recipe(RECIPES / f"{name}.toml", ())
    seconds = measured(workload(recipe, length=LENGTHS[name]), steps=7).seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    return {"seconds": seconds, "peak": peak}


def measure_in_process(name: str, setting: str) -> dict[str, float]:
    """Call `measure_step` in a new process."""
    command = [sys.executable, __file__, "--step", name, setting]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(finished.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measurements per setting (3)")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measure_step(*options.step)))
        return
    print(
        f"{'recipe':14}{'time: default':>15}{'threshold':>11}{'peak: default':>15}{'threshold':>11}"
    )
    for name in LENGTHS:
        rounds = [
            {setting: measure_in_process(name, setting) for setting in SETTINGS}
            for _ in range(options.rounds)
        ]
        ratios = [
            statistics.median(steps[setting][metric] / steps["heap"][metric] for steps in rounds)
            for metric in ("seconds", "peak")
            for setting in ("default", "threshold")
        ]
        columns = zip(ratios, (15, 11, 15, 11), strict=True)
        print(f"{name:14}" + "".join(f"{ratio:{width}.2f}" for ratio, width in columns), flush=True)


if __name__ == "__main__":
    main()
