"""Compare two OpenMP spin counts in a training step while another process uses a core.

    python benchmarks/neighbor.py

A thread of GNU OpenMP that waits for others first spins, then sleeps. The benchmark compares the
default number of spins with the one that `harken` sets (`SPINS` in `cli/main.py`), on all cores, in
three situations:

    idle machine                      no other process
    busy process, same session        a process with an endless loop in this terminal session
    busy process, other session       the same in a session of its own, to which the Linux
                                      scheduler gives as much CPU time as to this whole session

Each measurement is a separate process; the settings alternate. The benchmark prints a row per
situation and a column per recipe: time per step with the default / time with Harken's
setting (above 1: Harken's is faster), the median of `--rounds` rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from harken.cli.main import SPINS

RECIPES = Path(__file__).parents[1] / "recipes"
LENGTHS = {"tag": 24, "translate": 32}  # tokens
BUSY_LOOP = [sys.executable, "-c", "while True: pass"]
# Situation: whether the busy process has its own session, or None without a busy process.
SITUATIONS = {
    "idle machine": None,
    "busy process, same session": False,
    "busy process, other session": True,
}


def measure_steps() -> dict[str, float]:
    """Return the seconds of a training step of each recipe, measured in this process."""
    import torch

    from harken.cost.time import measured
    from harken.cost.workload import workload
    from harken.recipe import load_recipe
    from harken.training.runtime import configure_process

    configure_process(torch.device("cpu"))
    recipes = {name: load_recipe(RECIPES / f"{name}.toml", ()) for name in LENGTHS}
    return {
        name: measured(workload(recipe, length=LENGTHS[name])).seconds
        for name, recipe in recipes.items()
    }


def measure_in_process(spins: str | None) -> dict[str, float]:
    """Call `measure_steps` in a new process with this spin count; None is the default."""
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    if spins is not None:
        environment["GOMP_SPINCOUNT"] = spins
    command = [sys.executable, __file__, "--steps"]
    finished = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(finished.stdout))


def time_ratios(rounds: int) -> dict[str, float]:
    """Return the median of time with the default / time with Harken's setting by recipe."""
    pairs = [(measure_in_process(None), measure_in_process(SPINS)) for _ in range(rounds)]
    return {
        name: statistics.median(default[name] / harken[name] for default, harken in pairs)
        for name in LENGTHS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measurements per setting (3)")
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps:
        print(json.dumps(measure_steps()))
        return
    print(f"{'':32}" + "".join(f"{name:>12}" for name in LENGTHS))
    for title, own_session in SITUATIONS.items():
        busy = None
        if own_session is not None:
            busy = subprocess.Popen(BUSY_LOOP, start_new_session=own_session)
        try:
            ratios = time_ratios(options.rounds)
        finally:
            if busy is not None:
                busy.kill()
                busy.wait()
        print(f"{title:32}" + "".join(f"{ratio:12.2f}" for ratio in ratios.values()), flush=True)


if __name__ == "__main__":
    main()
