"""Compare Harken's layers with reference implementations: time, and memory of attention.

    python benchmarks/parts.py --rounds 41
    python benchmarks/parts.py --memory

Without `--memory`, the benchmark runs the forward and backward pass of each layer and of its
reference (`layer_comparisons.py`): a module of PyTorch or Hugging Face `transformers`, or plain
PyTorch. Both alternate in one process, so that other load on the machine slows down both. It prints
a row per size (`SIZES`) and layer: the median ratio time of Harken / time of the reference. Below
1, Harken is faster.

`--memory` measures the growth of peak memory over a forward and backward pass of attention, each in
a new process. It prints a JSON object per score function and position (or mask): MiB at 1024, 2048
and 4096 tokens, and the last one relative to a table of attention weights (`share_of_quadratic`).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
from layer_comparisons import (
    Comparison,
    Run,
    Sizes,
    layer_comparisons,
    positions_context,
    rotary_context,
)
from torch import Tensor, nn

from harken.attention.masks import CAUSAL, NO_MASK
from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import DotConfig, MergedConfig, ScaledConfig
from harken.training.runtime import configure_process

SIZES = {"small": Sizes(16, 64, 128, 4), "large": Sizes(8, 256, 256, 8)}
SCORES = {"dot": DotConfig(), "scaled": ScaledConfig(), "merged": MergedConfig()}
MEMORY_WIDTH, MEMORY_HEADS = 64, 4


def step_seconds(module: nn.Module, run: Run, inputs: Tensor) -> float:
    """Return the time of a forward and backward pass."""
    started = time.perf_counter()
    run(inputs).sum().backward()
    seconds = time.perf_counter() - started
    module.zero_grad(set_to_none=True)
    return seconds


def time_ratio(comparison: Comparison, inputs: Tensor, rounds: int) -> float:
    """Return the median of time of Harken / time of the reference, after three warm-up rounds."""
    harken = (comparison.layer, comparison.run)
    reference = (comparison.reference, comparison.run_reference)
    ratios = []
    for number in range(3 + rounds):
        if number % 2:  # each is first in every second round
            seconds = step_seconds(*harken, inputs)
            reference_seconds = step_seconds(*reference, inputs)
        else:
            reference_seconds = step_seconds(*reference, inputs)
            seconds = step_seconds(*harken, inputs)
        ratios.append(seconds / reference_seconds)
    return statistics.median(ratios[3:])


def print_times(rounds: int) -> None:
    for size, sizes in SIZES.items():
        inputs = torch.randn(sizes.batch, sizes.length, sizes.width, requires_grad=True)
        for comparison in layer_comparisons(sizes):
            ratio = time_ratio(comparison, inputs, rounds)
            titles = f"{comparison.title:30} {comparison.reference_title:30}"
            print(f"{size:6} {titles} {ratio:5.2f}", flush=True)


def print_peak_growth(score: str, position: str, length: int) -> None:
    """Print the growth of this process's peak memory over a forward and backward pass, in bytes."""
    import resource

    config = MultiHeadConfig(heads=MEMORY_HEADS, score=SCORES[score])
    attention = config.build(MEMORY_WIDTH, length)
    if position == "rotary":
        context = rotary_context(length, config, MEMORY_WIDTH)
    else:
        context = positions_context(length, NO_MASK if position == "none" else CAUSAL)
    attention(torch.randn(1, 8, MEMORY_WIDTH), positions_context(8, NO_MASK))[0].sum().backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attention(torch.randn(1, length, MEMORY_WIDTH), context)[0].sum().backward()
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def print_memory() -> None:
    weights_bytes = 4 * MEMORY_HEADS * 4096**2  # of float32 attention weights
    for score in SCORES:
        for position in ("none", "causal", "rotary"):
            growth = []
            for length in (1024, 2048, 4096):
                command = [sys.executable, __file__, "--peak", score, position, str(length)]
                finished = subprocess.run(command, capture_output=True, text=True, check=True)
                growth.append(int(finished.stdout))
            result = {
                "score": score,
                "position": position,
                "MiB": [round(size / 2**20, 1) for size in growth],
                "share_of_quadratic": round(growth[-1] / weights_bytes, 3),
            }
            print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31, help="measurements per layer (31)")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    configure_process(torch.device("cpu"))
    if options.peak:
        score, position, length = options.peak
        print_peak_growth(score, position, int(length))
    elif options.memory:
        print_memory()
    else:
        print_times(options.rounds)


if __name__ == "__main__":
    main()
