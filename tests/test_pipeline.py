"""Training from a recipe to a run folder, and resuming an interrupted run."""

import json
import shutil
import signal
from pathlib import Path

import pytest

import harken
from harken.errors import Failure, UserError
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.training.loop import Event, StepDone
from harken.training.signals import Interrupted
from small_recipe import SMALL
from untrained import equal_weights


def small(recipe_file: Path, *more: str) -> object:
    return load_recipe(recipe_file, [*SMALL, *more])


def test_files_of_a_run_folder(small_run: Path) -> None:
    names = (
        "recipe.toml tokenizer.json model.safetensors manifest.json provenance.json metrics.json "
        "log.jsonl README.md report.html checkpoints tokens"
    )
    assert {path.name for path in small_run.iterdir()} == set(names.split())
    metrics = json.loads((small_run / "metrics.json").read_text())
    assert (metrics["task"], metrics["n"]) == ("answer", 20)
    assert list(metrics["metrics"])[:2] == ["exact_match", "majority_answer"]
    log = [json.loads(line) for line in (small_run / "log.jsonl").read_text().splitlines()]
    steps = [(line["stage"], line["step"]) for line in log if line["event"] == "stepped"]
    assert steps == [("pretrain", n) for n in range(1, 7)] + [("finetune", n) for n in range(1, 6)]


def test_the_effective_recipe_is_the_recipe(small_run: Path, recipe_file: Path) -> None:
    assert load_recipe(small_run / "recipe.toml") == small(recipe_file)


def test_the_same_seed_gives_the_same_weights(
    small_run: Path, recipe_file: Path, tmp_path: Path
) -> None:
    train(small(recipe_file), tmp_path / "again")
    assert equal_weights(small_run, tmp_path / "again")
    train(small(recipe_file, "seed=6"), tmp_path / "other")
    assert not equal_weights(small_run, tmp_path / "other")


@pytest.mark.parametrize("stop", [1, 6, 11])
def test_a_resumed_run_has_the_same_weights(
    small_run: Path, recipe_file: Path, tmp_path: Path, stop: int
) -> None:
    steps = 0

    def interrupt(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, StepDone)
        if isinstance(event, StepDone) and steps == stop:
            signal.raise_signal(signal.SIGTERM)

    folder = tmp_path / "run"
    with pytest.raises(Interrupted) as stopped:
        train(small(recipe_file), folder, listener=interrupt)
    assert stopped.value.number == signal.SIGTERM
    assert not (folder / "model.safetensors").exists()
    train(small(recipe_file), folder, resume=True)
    assert equal_weights(small_run, folder)
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    logged = [line["step"] for line in log if line["event"] == "stepped"]
    assert logged == [*range(1, 7), *range(1, 6)]


def test_signal_handlers_are_restored(recipe_file: Path, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    train(small(recipe_file, "training.pretrain.steps=0"), tmp_path / "run")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_existing_run_is_not_changed(small_run: Path, recipe_file: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in small_run.rglob("*")}
    with pytest.raises(UserError, match="already holds a run"):
        train(small(recipe_file), small_run)
    with pytest.raises(UserError, match=r"expected 'seed = 5', got 'seed = 6'"):
        train(small(recipe_file, "seed=6"), small_run, resume=True)
    train(small(recipe_file), small_run, resume=True)  # finished: nothing to do
    assert {path: path.stat().st_mtime_ns for path in small_run.rglob("*")} == before


def test_a_folder_of_other_files_is_rejected(recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="files that are not a run"):
        train(small(recipe_file), tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "recipe.toml"])
@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_damaged_files_are_rejected(
    small_run: Path, tmp_path: Path, name: str, damage: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    contents = bytearray((folder / name).read_bytes())
    if damage == "truncated":
        del contents[len(contents) // 2 :]
    else:
        contents[len(contents) // 2] ^= 1
    (folder / name).write_bytes(contents)
    with pytest.raises(Failure, match=rf"{name}: the file is damaged"):
        harken.load(folder)


def test_loading_an_unfinished_run(small_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no recipe\.toml"):
        harken.load(tmp_path)
    shutil.copy(small_run / "recipe.toml", tmp_path)
    with pytest.raises(UserError, match="has not finished"):
        harken.load(tmp_path)
