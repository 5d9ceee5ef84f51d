"""Time `harken --help` and `harken predict` of one input against the least that they could take.

    python benchmarks/startup.py RUN INPUT [--rounds 11]

RUN is a run folder, INPUT a file with one line, a sound or an image. Prints two rows: the median
seconds of the command and of its baseline, and the median ratio with its 95 % interval.

    help       baseline: start Python
    predict    baseline: start Python, import PyTorch, and read the weights with safetensors

Command and baseline alternate. Python must be able to cache bytecode, so PYTHONDONTWRITEBYTECODE is
ignored, and a first round is not counted.
"""

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

READ_WEIGHTS = "import sys, torch; from safetensors.torch import load_file; load_file(sys.argv[1])"


def seconds(arguments: Sequence[str]) -> float:
    """Return the wall time of a Python process."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the values whose ranks bound the median with a confidence of at least 95 %."""
    ranked, n, rank = sorted(values), len(values), 0
    while 2 * sum(math.comb(n, k) for k in range(rank + 2)) <= 0.05 * 2**n:
        rank += 1
    return ranked[rank], ranked[-1 - rank]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("input")
    parser.add_argument("--rounds", type=int, default=11, help="pairs of measurements (11)")
    options = parser.parse_args()
    predict = ["-m", "harken", "predict", options.run, options.input]
    commands = {
        "help": (["-m", "harken", "--help"], ["-c", "pass"]),
        "predict": (predict, ["-c", READ_WEIGHTS, f"{options.run}/model.safetensors"]),
    }
    for name, pair in commands.items():
        times = [tuple(map(seconds, pair)) for _ in range(options.rounds + 1)][1:]
        command, baseline = map(median, zip(*times, strict=True))
        ratios = [a / b for a, b in times]
        low, high = median_interval(ratios)
        print(
            f"{name:8} {command:6.3f} s  baseline {baseline:6.3f} s  "
            f"ratio {median(ratios):.2f} ({low:.2f} - {high:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
