"""Compare the predicted with the measured cost of a training step: eight recipes, three lengths.

    python benchmarks/cost.py [--json FILE]

The predictions are those of `harken cost`: time is the sum over the kernels of the step, each
measured alone; memory is counted in a trace. The benchmark then runs the step. The machine should
be otherwise idle. It prints a row per recipe and length with ratios predicted / measured:

    time    one training step (the predicted and measured milliseconds are printed too)
    saved   bytes that the forward pass saves for the backward pass
    peak    largest number of bytes during the step, without weights and gradients

The last line counts the rows whose time is within 25 %.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch

from harken.cost.time import KernelCounter, measure_step
from harken.cost.workload import trace_workload, workload
from harken.recipe import load_recipe
from harken.training.runtime import configure_process

RECIPES = Path(__file__).parents[1] / "recipes"
TOLERANCE = 0.25
# Row name, which starts with the recipe's: settings of the recipe, lengths in tokens or frames.
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


def rows() -> Iterator[dict[str, float | str]]:
    """Yield the JSON object of each recipe and length."""
    for name, (settings, lengths) in CASES.items():
        recipe = load_recipe(RECIPES / f"{name.split()[0]}.toml", settings)
        for length in lengths:
            step, kernels = workload(recipe, length=length), KernelCounter()
            cost = trace_workload(step, [kernels])
            (measured_seconds, memory), predicted_seconds = measure_step(step), kernels.seconds()
            yield {
                "recipe": name,
                "length": length,
                "predicted_ms": 1000 * predicted_seconds,
                "measured_ms": 1000 * measured_seconds,
                "time_ratio": predicted_seconds / measured_seconds,
                "saved_bytes_ratio": cost.saved_bytes / memory.saved_bytes,
                "peak_ratio": cost.peak / memory.peak,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    configure_process(torch.device("cpu"))
    printed = []
    for row in rows():
        print(
            f"{row['recipe']:12} {row['length']:5}  predicted {row['predicted_ms']:8.1f} ms  "
            f"measured {row['measured_ms']:8.1f} ms  ratio: time {row['time_ratio']:5.2f}  "
            f"saved {row['saved_bytes_ratio']:5.2f}  peak {row['peak_ratio']:5.2f}",
            flush=True,
        )
        printed.append(row)
    ratios = [float(row["time_ratio"]) for row in printed]
    close = sum(abs(ratio - 1) <= TOLERANCE for ratio in ratios)
    median = statistics.median(ratios)
    print(f"{close} of {len(ratios)} times within {TOLERANCE:.0%}; median ratio {median:.2f}")
    if options.json:
        options.json.write_text(json.dumps(printed, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
