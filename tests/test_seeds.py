"""`harken train --seeds`: run folders, the table, and that interruptions do not change it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from command_line import Cli
from harken.errors import UserError
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.run_folder import read_metrics
from harken.seeds import train_seeds
from harken.training.loop import Event, StepDone
from harken.training.signals import Interrupted
from test_interruption import files_of, write_recipe
from untrained import equal_weights

SEEDS = (3, 4)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two seeds without interruption; the recipe is next to it."""
    folder = tmp_path_factory.mktemp("seeds")
    train_seeds(load_recipe(write_recipe(folder)), folder / "whole", 2)
    return folder / "whole"


def test_runs_are_those_of_single_seeds(group: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in group.iterdir()) == [
        "metrics.json",
        *(f"seed-{seed}" for seed in SEEDS),
    ]
    alone = train(load_recipe(group.parent / "recipe.toml", ["seed=4"]), tmp_path / "alone")
    assert equal_weights(group / "seed-4", alone.folder)
    assert not equal_weights(group / "seed-3", group / "seed-4")
    record = json.loads((group / "metrics.json").read_text())
    assert record["seeds"] == list(SEEDS) and record["same_examples"] is True
    stored = [read_metrics(group / f"seed-{seed}")["metrics"] for seed in SEEDS]
    for name, metric in record["metrics"].items():
        values = [metrics[name]["value"] for metrics in stored]
        assert metric["values"] == values
        assert metric["value"] == pytest.approx(np.mean(values))
        assert metric["std"] == pytest.approx(np.std(values, ddof=1))


def test_stopped_twice_and_resumed_ends_in_the_same_table(
    group: Path, tmp_path: Path, cli: Cli
) -> None:
    recipe, steps = load_recipe(group.parent / "recipe.toml"), 0

    def listener(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, StepDone)
        if steps in (5, 13):  # in the first run, then in the second
            signal.raise_signal(signal.SIGTERM)

    for resume in (False, True):
        with pytest.raises(Interrupted):
            train_seeds(recipe, tmp_path / "run", 2, resume=resume, listener=listener)
    assert steps == 13
    assert not (tmp_path / "run" / "metrics.json").exists()
    command = ("train", group.parent / "recipe.toml", "--seeds", 2, "--resume")
    printed = [cli(*command, "--run", run) for run in (tmp_path / "run", group)]
    assert printed[0].out == printed[1].out
    for seed in SEEDS:
        assert equal_weights(group / f"seed-{seed}", tmp_path / "run" / f"seed-{seed}")
    records = [(run / "metrics.json").read_text() for run in (tmp_path / "run", group)]
    assert records[0] == records[1]
    lines = [line.split() for line in printed[0].out.splitlines() if line.strip()]
    assert " ".join(lines[0]) == "metric mean std 95 % interval seed 3 seed 4"
    assert cli.json(*command, "--run", group) == json.loads(records[0])


def test_errors_change_nothing(group: Path, cli: Cli) -> None:
    before = files_of(group)
    recipe = group.parent / "recipe.toml"
    command = ("train", recipe, "--run", group, "--seeds")
    assert "seed-3: the folder already holds a run" in cli.error(*command, 2)
    assert "seed-3: the recipe differs" in cli.error(
        *command, 2, "--resume", "--set", "training.steps=9"
    )
    assert "that of a single run" in cli.error(
        "train", recipe, "--run", group / "seed-3", "--seeds", 2, "--resume"
    )
    assert "expected 2 or more, got 1" in cli(*command, 1, code=2).err
    assert "expected 2 or more" in cli.error(*command, 2, "--seed", 2**63 - 1)
    assert f"such as {group / 'seed-3'}" in cli.error("evaluate", group)
    assert "files that are not a run" in cli.error("train", recipe, "--run", group)
    with pytest.raises(UserError, match="got 1 from 3"):
        train_seeds(load_recipe(recipe), group, 1)
    assert files_of(group) == before


def test_shares_of_dev_differ_between_seeds(tmp_path: Path, cli: Cli) -> None:
    words = [
        f"the\tD\n{word}\tN\n\n"
        for word in ["cat", "dog", "cow", "hen", "owl", "fox", "bee", "ant"]
    ]
    (tmp_path / "train.tsv").write_text("".join(words * 3))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'task = "tag"\n[data]\ntrain = "train.tsv"\ndev = 0.3\n[model]\nwidth = 8\n'
        "characters.width = 4\nencoder.hidden = 4\n[training.tags]\nsteps = 1\n"
    )
    printed = cli("train", recipe, "--seeds", 2, "--run", tmp_path / "run")
    assert "each with a dev split of its own" in printed.err
    record = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert record["same_examples"] is False


@pytest.mark.slow
def test_killed_twice_and_resumed_prints_the_same(group: Path, tmp_path: Path) -> None:
    """By SIGKILL, in the first and in the second run."""
    recipe, run = group.parent / "recipe.toml", tmp_path / "run"
    command = [sys.executable, "-m", "harken", "train", str(recipe), "--run", str(run)]
    command += ["--seeds", "2", "--resume", "--json", "--set", "training.runtime.threads=1"]
    for seed in SEEDS:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = run / f"seed-{seed}" / "log.jsonl"
        while process.poll() is None and not (log.exists() and log.stat().st_size):
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == json.loads((group / "metrics.json").read_text())
