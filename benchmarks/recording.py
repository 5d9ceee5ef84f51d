"""Measure what recording attention weights costs: time and memory of a forward pass.

    python benchmarks/recording.py
    python benchmarks/recording.py --rounds 101 --json

The model is a GPT with 4 layers, width 256 and 4 heads, in inference mode. The first table has a
row per batch size (sequences x tokens) and three ratios of times of a forward pass:

    off          a model that was recorded earlier / a model that was never recorded
    one layer    one of four layers recorded / not recorded
    all layers   four layers recorded / not recorded

The cases alternate in one process, so that other load on the machine slows down all of them. A
figure is the median of the ratios within a round.

The last line is the memory at 4,096 tokens: the growth of peak memory in a forward pass with one
layer recorded minus the growth without, each measured in a new process. It is printed next to a
bound, the size of the recorded weights plus eight blocks of scores.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from harken.inspection.record import ALL, BLOCK, Selection, record
from harken.models.gpt import GPT, GPTConfig
from harken.training.runtime import configure_process

LENGTH, HEADS, VOCABULARY = 4096, 4, 1000
SIZES = {"32 x 64": (32, 64), "8 x 256": (8, 256), "1 x 1024": (1, 1024)}
WARMUP = 2  # rounds that are not counted
BOUND_BLOCKS = 8
FLOAT_BYTES, MIB = 4, 2**20
ONE_LAYER = Selection(layers=(1,))
Recording = Callable[[], AbstractContextManager[object]]


def build_model() -> GPT:
    return GPTConfig(layers=4, width=256, max_length=LENGTH).build(VOCABULARY, seed=0).eval()


@torch.inference_mode()
def forward_seconds(model: GPT, tokens: torch.Tensor, recording: Recording) -> float:
    started = time.perf_counter()
    with recording():
        model.states(tokens)
    return time.perf_counter() - started


def time_ratios(rounds: int) -> dict[str, dict[str, float]]:
    """Return the ratios of the table by batch size and case."""
    unrecorded, model = build_model(), build_model()
    cases: dict[str, tuple[GPT, Recording]] = {
        "never": (unrecorded, nullcontext),
        "off": (model, nullcontext),
        "one layer": (model, lambda: record(model, ONE_LAYER)),
        "all layers": (model, lambda: record(model, ALL)),
    }
    ratios = {}
    for size, (batch, length) in SIZES.items():
        tokens = torch.randint(VOCABULARY, (batch, length))
        seconds: dict[str, list[float]] = {case: [] for case in cases}
        for number in range(WARMUP + rounds):
            # The order is reversed in every second round: the first case has a colder cache.
            for case in list(cases) if number % 2 else reversed(cases):
                seconds[case].append(forward_seconds(cases[case][0], tokens, cases[case][1]))
        ratios[size] = {
            case: median_ratio(seconds[case][WARMUP:], seconds[reference][WARMUP:])
            for case, reference in (("off", "never"), ("one layer", "off"), ("all layers", "off"))
        }
    return ratios


def median_ratio(times: list[float], reference_times: list[float]) -> float:
    pairs = zip(times, reference_times, strict=True)
    return statistics.median(seconds / reference for seconds, reference in pairs)


def print_peak_growth(recorded: bool) -> None:
    """Print the growth of this process's peak memory over one forward pass, in bytes."""
    import resource

    model = build_model()
    recording = record(model, ONE_LAYER) if recorded else nullcontext()
    with torch.inference_mode():
        model.states(torch.zeros(1, 8, dtype=torch.long))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with recording:
            model.states(torch.zeros(1, LENGTH, dtype=torch.long))
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def measure_memory() -> dict[str, float]:
    """Return the memory of recording one layer in MiB."""
    growth = {}
    for recorded in ("off", "on"):
        command = [sys.executable, __file__, "--peak", recorded]
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
        growth[recorded] = int(finished.stdout)
    weights = FLOAT_BYTES * HEADS * LENGTH**2
    return {
        "weights": weights / MIB,
        "measured": (growth["on"] - growth["off"]) / MIB,
        "bound": (weights + BOUND_BLOCKS * FLOAT_BYTES * BLOCK) / MIB,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41, help="measurements per case (41)")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("--peak", choices=("off", "on"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    configure_process(torch.device("cpu"))
    if options.peak:
        print_peak_growth(options.peak == "on")
        return
    memory, ratios = measure_memory(), time_ratios(options.rounds)
    if options.json:
        print(json.dumps({"ratios": ratios, "MiB": memory}))
        return
    cases = next(iter(ratios.values()))
    print(f"{'sequences x tokens':20}" + "".join(f"{case:>12}" for case in cases))
    for size, row in ratios.items():
        print(f"{size:20}" + "".join(f"{ratio:12.2f}" for ratio in row.values()))
    print(
        f"one layer at {LENGTH:,} tokens: {memory['measured']:.0f} MiB more than without recording "
        f"(the weights are {memory['weights']:.0f} MiB, the bound is {memory['bound']:.0f} MiB)"
    )


if __name__ == "__main__":
    main()
