"""A training step on all cores while another process wants one of them.

    python benchmarks/neighbor.py

Two ways for threads to wait for each other: as GNU's OpenMP does by itself, and as `harken` asks it
to (`cli/main.py`). Each in processes of its own that take turns: with nothing else to do, beside a
process that counts, and beside one that counts in a terminal of its own, to which Linux gives as
much as to all of ours. Figures are the time of a step by that of the second way.
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
CASES = {"tag": 24, "translate": 32}


def steps() -> dict[str, float]:
    """Seconds of a step of each recipe, in this process."""
    import torch

    from harken.cost.time import measured
    from harken.cost.workload import workload
    from harken.recipe import load_recipe
    from harken.training.runtime import prepare

    prepare(torch.device("cpu"))
    recipes = {name: load_recipe(RECIPES / f"{name}.toml", ()) for name in CASES}
    return {
        name: measured(workload(recipe, length=CASES[name])).seconds
        for name, recipe in recipes.items()
    }


def apart(spins: str | None) -> dict[str, float]:
    """The same in a process of its own."""
    told = {name: one for name, one in os.environ.items() if name != "GOMP_SPINCOUNT"}
    if spins is not None:
        told["GOMP_SPINCOUNT"] = spins
    command = [sys.executable, __file__, "--one"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=told)
    return dict(json.loads(found.stdout))


def ratios(rounds: int) -> dict[str, float]:
    """GNU's own way by ours, the median of all rounds."""
    found = [(apart(None), apart(SPINS)) for _ in range(rounds)]
    return {name: statistics.median(one[name] / two[name] for one, two in found) for name in CASES}


def main() -> None:
    """Print a row alone and a row beside a neighbor."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(steps()))
        return
    print(f"{'':32}" + "".join(f"{name:>12}" for name in CASES))
    for title, terminals in (
        ("alone", []),
        ("beside one of this terminal", [False]),
        ("beside one of another terminal", [True]),
    ):
        counting = [sys.executable, "-c", "while True: pass"]
        beside = [subprocess.Popen(counting, start_new_session=one) for one in terminals]
        try:
            found = ratios(options.rounds)
        finally:
            for one in beside:
                one.kill()
        print(f"{title:32}" + "".join(f"{one:12.2f}" for one in found.values()), flush=True)


if __name__ == "__main__":
    main()
