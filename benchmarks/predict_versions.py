"""Compare the speed of `harken predict` between two versions of Harken.

    git worktree add ../old REVISION
    python benchmarks/predict_versions.py ../old . --lines 10000 --rounds 3

Each version generates data, trains `translate` and `answer` on it for 200 steps, and predicts the
same lines with the search of its recipe. The versions alternate. Prints a row per task: lines per
second of both versions (median of the rounds, from process start to end) and their ratio.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peer_systems.commands import DATA, FILES, INPUTS, STAGE

STEPS = 200  # of training


def harken(worktree: Path, *arguments: str, text: str | None = None) -> str:
    """Run a command of a version and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(worktree / "src")}
    command = [sys.executable, "-m", "harken", *arguments]
    finished = subprocess.run(command, input=text, capture_output=True, text=True, env=environment)
    if finished.returncode:
        sys.exit(f"{worktree}: {' '.join(arguments)}\n{finished.stderr}")
    return finished.stdout


def train(worktree: Path, task: str, folder: Path, data: Path) -> None:
    settings = {name: str(data / file) for name, file in FILES[task].items()}
    settings[f"{STAGE[task]}.steps"] = str(STEPS)
    pairs = [word for item in settings.items() for word in ("--set", "=".join(item))]
    recipe = worktree / "recipes" / f"{task}.toml"
    harken(worktree, "train", str(recipe), "--run", str(folder), *pairs)


def lines_per_second(worktree: Path, run: Path, lines: list[str]) -> float:
    started = time.perf_counter()
    output = harken(worktree, "predict", str(run), text="".join(f"{line}\n" for line in lines))
    seconds = time.perf_counter() - started
    assert len(output.splitlines()) == len(lines)
    return len(lines) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="worktree of the old version")
    parser.add_argument("new", type=Path, help="worktree of the new version")
    parser.add_argument("--lines", type=int, default=10_000, help="lines to predict (10000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    options = parser.parse_args()
    versions = [options.old.resolve(), options.new.resolve()]
    for task in DATA:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            harken(versions[1], "data", *DATA[task], "--out", str(folder / "data"))
            inputs = (folder / "data" / INPUTS[task]).read_text().splitlines()
            inputs = [line.split("\t")[0] for line in inputs]
            lines = (inputs * (1 + options.lines // len(inputs)))[: options.lines]
            runs = [folder / "old", folder / "new"]
            for worktree, run in zip(versions, runs, strict=True):
                train(worktree, task, run, folder / "data")
            rates = [
                [lines_per_second(*version, lines) for version in zip(versions, runs, strict=True)]
                for _ in range(options.rounds)
            ]
        old, new = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"{task:12}{old:8.0f} -> {new:.0f} lines per second ({new / old:.2f})", flush=True)


if __name__ == "__main__":
    main()
