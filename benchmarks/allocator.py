"""What it gains a training step to keep all of its memory, wide vocabularies above all.

    python benchmarks/allocator.py

Three ways to have glibc give memory out, in processes of their own that take turns: as it does by
itself, with the largest threshold that it takes (blocks above 32 MiB go back to the system after
each use and their pages are made anew), and as `training/runtime.py` sets it. Time and peak memory
of a step are divided by those of the last.
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
from harken.training.runtime import TRIM_ABOVE, prepare

RECIPES = Path(__file__).parents[1] / "recipes"
CASES = {"lm": 128, "answer": 64, "tag": 24, "fill": 24, "translate": 32, "transcribe": 400}
CASES |= {"caption": 16}
WAYS = ("glibc's own", "threshold", "heap")
TRIM, THRESHOLD, LARGEST = -1, -3, 32 << 20  # by malloc.h


def one_step(name: str, way: str) -> dict[str, float]:
    """In this process, which no other way has touched."""
    if way == "threshold":
        allocator = ctypes.CDLL(None)
        allocator.mallopt(THRESHOLD, LARGEST)
        allocator.mallopt(TRIM, TRIM_ABOVE)
    elif way == "heap":
        prepare(torch.device("cpu"))
    torch.set_flush_denormal(True)
    recipe = load_recipe(RECIPES / f"{name}.toml", ())
    seconds = measured(workload(recipe, length=CASES[name]), steps=7).seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    return {"seconds": seconds, "peak": peak}


def apart(name: str, way: str) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", name, way]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(found.stdout))


def main() -> None:
    """Print a row for each recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_step(*options.one)))
        return
    print("recipe        time: glibc's own  threshold    peak: glibc's own  threshold")
    for name in CASES:
        rounds = [{way: apart(name, way) for way in WAYS} for _ in range(options.rounds)]
        cells = [
            statistics.median(one[way][what] / one["heap"][what] for one in rounds)
            for what in ("seconds", "peak")
            for way in WAYS[:2]
        ]
        row = "".join(
            f"{cell:{width}.2f}" for cell, width in zip(cells, (11, 11, 20, 11), strict=True)
        )
        print(f"{name:14}{row}", flush=True)


if __name__ == "__main__":
    main()
