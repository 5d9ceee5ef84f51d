"""Predicted against measured time of a training step: eight recipes at three lengths each.

    python benchmarks/cost.py [--json FILE]

Every step is run, and then each of its distinct kernels, so the machine should be idle. Each row
also compares counted with measured memory: what the forward pass keeps for the backward pass, and
the most that is held at any time.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch

from harken.cost.time import Kernels, measured
from harken.cost.workload import trace_workload, workload
from harken.recipe import load_recipe
from harken.training.runtime import prepare

RECIPES = Path(__file__).parents[1] / "recipes"
WANTED = 0.25  # largest accepted error of a prediction
CASES: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "lm": (("model.max_length=512",), (64, 128, 512)),
    "answer": ((), (32, 64, 128)),
    "tag": ((), (8, 24, 64)),
    "fill": ((), (8, 24, 64)),
    "translate": ((), (16, 32, 64)),
    "transcribe": ((), (100, 400, 1000)),
    "caption": ((), (8, 16, 32)),
    "lm rnn": (("model.kind=rnn",), (64, 128, 256)),
}


def rows() -> list[dict[str, float | str]]:
    """One for each recipe and length."""
    found = []
    for name, (sets, lengths) in CASES.items():
        recipe = load_recipe(RECIPES / f"{name.split()[0]}.toml", sets)
        for length in lengths:
            step, kernels = workload(recipe, length=length), Kernels()
            cost = trace_workload(step, [kernels])
            real, predicted = measured(step), kernels.seconds()
            row: dict[str, float | str] = {"recipe": name, "length": length}
            row |= {"predicted_ms": 1000 * predicted, "measured_ms": 1000 * real.seconds}
            row |= {"time_ratio": predicted / real.seconds}
            kept, peak = cost.kept / real.kept, cost.peak / real.peak
            row |= {"kept_ratio": kept, "peak_ratio": peak}
            found.append(row)
            sys.stdout.write(
                f"{name:12} {length:5}  predicted {1000 * predicted:8.1f} ms  measured "
                f"{1000 * real.seconds:8.1f} ms  ratio {predicted / real.seconds:5.2f}  "
                f"kept {kept:5.2f}  peak {peak:5.2f}\n"
            )
            sys.stdout.flush()
    return found


def main() -> None:
    """Print the table and how many predictions hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    prepare(torch.device("cpu"))
    found = rows()
    ratios = [float(one["time_ratio"]) for one in found]
    near = sum(abs(one - 1) <= WANTED for one in ratios)
    median = statistics.median(ratios)
    sys.stdout.write(f"{near} of {len(ratios)} within {WANTED:.0%}; median ratio {median:.2f}\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
