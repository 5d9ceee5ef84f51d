"""`harken runs`: states, figures and damaged folders."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli
from harken.cli.runs import file_size_text
from harken.files import locked_folder
from harken.run import load
from harken.run_list import count_parameters
from untrained import task_recipe, untrained_run


@pytest.fixture
def runs(small_run: Path, tmp_path: Path) -> Path:
    """A finished run in `runs/deep`, and one that was interrupted after a step in `runs/part`."""
    folder = tmp_path / "runs"
    shutil.copytree(small_run, folder / "deep" / "whole")
    shutil.copytree(small_run, folder / "part")
    for name in ("model.safetensors", "metrics.json", "manifest.json"):
        (folder / "part" / name).unlink()
    (folder / "notes").mkdir()
    (folder / "notes" / "recipe.toml").write_text('task = "tag"')  # not a run
    return folder


def listed(cli: Cli, folder: Path) -> dict[str, dict[str, Any]]:
    result = cli.json("runs", folder)
    assert result["folder"] == str(folder)
    return {item["run"]: item for item in result["runs"]}


def test_states_and_figures(runs: Path, cli: Cli) -> None:
    found = listed(cli, runs)
    assert list(found) == ["deep/whole", "part"]
    whole, part = found.values()
    run = load(runs / "deep" / "whole")
    stored = json.loads((run.folder / "metrics.json").read_text())["metrics"]["exact_match"]
    assert (whole["task"], whole["state"], whole["step"]) == ("answer", "finished", None)
    assert (whole["metric"], whole["estimate"]) == ("exact_match", stored)
    parameters = sum(weight.numel() for weight in run.model.parameters())
    assert whole["parameters"] == part["parameters"] == parameters
    assert whole["bytes"] == sum(p.stat().st_size for p in run.folder.rglob("*") if p.is_file())
    assert (part["state"], part["metric"]) == ("interrupted", None)
    assert (part["stage"], part["step"], part["steps"]) == ("finetune", 5, 5)
    with locked_folder(runs / "part"):
        assert listed(cli, runs)["part"]["state"] == "training"
    (runs / "part" / ".lock").touch()  # of a killed process
    assert listed(cli, runs)["part"]["state"] == "interrupted"
    lines = [line.split() for line in cli("runs", runs).out.splitlines()]
    (row,) = [line for line in lines if line[:1] == ["part"]]
    assert row[1:5] == ["answer", "interrupted,", "finetune", "5/5"]
    assert listed(cli, runs / "part").keys() == {"."}
    (runs / "deep" / "whole" / "metrics.json").unlink()  # stopped before its evaluation
    assert listed(cli, runs)["deep/whole"]["state"] == "interrupted"


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "recipe": ("the recipe cannot be read", lambda run: (run / "recipe.toml").write_text("= 1")),
    "no recipe": ("recipe.toml: file not found", lambda run: (run / "recipe.toml").unlink()),
    "binary recipe": (
        "the recipe cannot be read",
        lambda run: (run / "recipe.toml").write_bytes(b"\xff\0"),
    ),
    "metrics": ("metrics.json: cannot be read", lambda run: (run / "metrics.json").write_text("{")),
    "weights": (
        "the weights cannot be read",
        lambda run: (run / "model.safetensors").write_bytes(b"\1" * 9),
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_does_not_hide_the_others(case: str, runs: Path, cli: Cli) -> None:
    message, damage = DAMAGE[case]
    shutil.copytree(runs / "deep" / "whole", runs / "bad")
    damage(runs / "bad")
    found = listed(cli, runs)
    assert [item["state"] for item in found.values()] == ["damaged", "finished", "interrupted"]
    assert message in found["bad"]["problem"]
    printed = cli("runs", runs)
    assert message in printed.err and "runs/bad" in printed.err


def test_a_log_of_noise_has_no_step(runs: Path, cli: Cli) -> None:
    (runs / "part" / "log.jsonl").write_bytes(b'\0\xff{"event"\n' * 999)
    assert listed(cli, runs)["part"]["step"] is None


def test_folders_without_runs(tmp_path: Path, cli: Cli) -> None:
    assert cli("runs", tmp_path).err == f"no runs in {tmp_path}\n"
    assert cli.json("runs", tmp_path) == {"folder": str(tmp_path), "runs": []}
    assert "folder not found" in cli.error("runs", tmp_path / "nowhere")


def test_buffers_are_not_parameters(tmp_path: Path) -> None:
    """A Conformer has batch normalization, and ALiBi its slopes."""
    recipes = {
        "transcribe": ["model.width=16", "model.frontend.channels=4", "model.encoder.layers=1"],
        "lm": ["model.width=16", "model.layers=1", "model.position.kind=alibi"],
    }
    for task, settings in recipes.items():
        folder = untrained_run(task_recipe(task, tmp_path, settings), tmp_path / "runs" / task)
        weights = load(folder).model.parameters()
        assert count_parameters(folder) == sum(weight.numel() for weight in weights)


def test_sizes() -> None:
    assert [file_size_text(size) for size in (0, 999, 1000, 1_549_000, 2.5e15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "2500.0 TB",
    ]
