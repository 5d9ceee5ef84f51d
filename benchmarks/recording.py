"""What it costs to look: time of a pass with and without a recorder, and the memory of a long one.

    python benchmarks/recording.py                ratios of time, and memory at 4,096 tokens
    python benchmarks/recording.py --rounds 101 --json

    off          a model that was recorded once and is no more, against one that never was
    one layer    one layer of four recorded, against none
    all layers   all four recorded, against none

A GPT of 4 layers, width 256 and 4 heads. Sides take turns in one process, so that a busy machine
slows both alike; a figure is the median of the ratios of neighboring turns. Memory is the growth
of a process's peak over a pass of 4,096 tokens with one layer recorded, less that of one without,
each in a process of its own; the bound is what is recorded and eight blocks of scores.
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
from harken.training.runtime import prepare

LENGTH, HEADS, NUMBER = 4096, 4, 4  # bytes of a float32
SIZES = {"32 x 64": (32, 64), "8 x 256": (8, 256), "1 x 1024": (1, 1024)}
BLOCKS = 8
ONE_LAYER = Selection(layers=(1,))
MEBI = 2**20


def built() -> GPT:
    return GPTConfig(layers=4, width=256, max_length=LENGTH).build(1000, seed=0).eval()


@torch.inference_mode()
def seconds(
    model: GPT, tokens: torch.Tensor, around: Callable[[], AbstractContextManager[object]]
) -> float:
    begun = time.perf_counter()
    with around():
        model.states(tokens)
    return time.perf_counter() - begun


def ratios(rounds: int) -> dict[str, dict[str, float]]:
    never, off = built(), built()
    sides: dict[str, tuple[GPT, Callable[[], AbstractContextManager[object]]]] = {
        "never": (never, nullcontext),
        "off": (off, nullcontext),
        "one layer": (off, lambda: record(off, ONE_LAYER)),
        "all layers": (off, lambda: record(off, ALL)),
    }
    found = {}
    for size, (batch, length) in SIZES.items():
        tokens = torch.randint(1000, (batch, length))
        taken: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(rounds + 2):
            # Forwards and backwards in turn: who comes first finds a colder cache.
            for side in list(sides) if turn % 2 else reversed(sides):
                model, around = sides[side]
                took = seconds(model, tokens, around)
                if turn >= 2:
                    taken[side].append(took)
        found[size] = {
            "off": median_ratio(taken["off"], taken["never"]),
            "one layer": median_ratio(taken["one layer"], taken["off"]),
            "all layers": median_ratio(taken["all layers"], taken["off"]),
        }
    return found


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def peak(recorded: bool) -> None:
    """Print the growth of this process's peak memory over one pass, in bytes."""
    import resource

    model = built()
    choice = record(model, ONE_LAYER) if recorded else nullcontext()
    with torch.inference_mode():
        model.states(torch.zeros(1, 8, dtype=torch.long))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with choice:
            model.states(torch.zeros(1, LENGTH, dtype=torch.long))
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def memory() -> dict[str, float]:
    grown = {}
    for side in ("off", "on"):
        call = [sys.executable, __file__, "--peak", side]
        found = subprocess.run(call, capture_output=True, text=True, check=True)
        grown[side] = int(found.stdout)
    weights = NUMBER * HEADS * LENGTH**2
    return {
        "weights": weights / MEBI,
        "measured": (grown["on"] - grown["off"]) / MEBI,
        "bound": (weights + BLOCKS * NUMBER * BLOCK) / MEBI,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", choices=("off", "on"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    prepare(torch.device("cpu"))
    if options.peak:
        return peak(options.peak == "on")
    room, times = memory(), ratios(options.rounds)
    if options.json:
        print(json.dumps({"ratios": times, "MiB": room}))
        return None
    print(f"{'rows x tokens':14}" + "".join(f"{name:>12}" for name in next(iter(times.values()))))
    for size, row in times.items():
        print(f"{size:14}" + "".join(f"{ratio:12.2f}" for ratio in row.values()))
    print(
        f"one layer at {LENGTH:,} tokens: {room['measured']:.0f} MiB more, "
        f"bound {room['bound']:.0f} MiB, of which the weights themselves are {room['weights']:.0f}"
    )
    return None


if __name__ == "__main__":
    main()
