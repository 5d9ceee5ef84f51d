"""A new task needs one file and one registration; every command works for it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import reverse

from command_line import Cli
from harken.cli.parsers.training import TASK_NAMES
from harken.pipeline import train
from harken.recipe import TASKS, load_recipe
from harken.training.checkpoint import load_weights
from harken.training.loop import Event, StepDone

WORDS = [f"{a}{b}{c}" for a in "abcd" for b in "abcd" for c in "abc"]
SETTINGS = ["training.steps=100", "training.optimizer.lr=0.02", "model.layers=1"]
RUNS = ("whole", "stopped")


class Stop(Exception):
    """Interrupts training."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(TASKS, "reverse", reverse.ReverseTask())
    names = "harken.cli.parsers.training.TASK_NAMES"
    monkeypatch.setattr(names, (*TASK_NAMES, "reverse"))
    # Fitting formulas takes many traces, for any task the same way; see tests/cost.
    monkeypatch.setattr("harken.cli.cost.count_formulas", lambda step: {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    return tmp_path


def test_a_new_task_is_small() -> None:
    assert len(Path(reverse.__file__).read_text(encoding="utf-8").splitlines()) <= 120


def test_every_command_works(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(capsys)
    cli("new", "reverse", "words.txt")
    recipe = load_recipe("recipe.toml", SETTINGS)

    def stop_early(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 5:
            raise Stop

    short = replace(recipe, training=replace(recipe.training, steps=7, save_every=3))
    train(short, "whole")
    with pytest.raises(Stop):
        train(short, "stopped", listener=stop_early)
    train(short, "stopped", resume=True)
    weights, resumed = (load_weights(Path(name, "model.safetensors")) for name in RUNS)
    assert all(weights[name].equal(resumed[name]) for name in weights)
    run = train(recipe, "run")
    evaluated = cli.json("evaluate", "run")
    assert evaluated == json.loads(Path("run/metrics.json").read_text(encoding="utf-8"))
    assert evaluated["metrics"]["exact_match"]["value"] > 0.8
    assert run.predict("abc")[0].output == "cba"
    printed = cli("predict", "run", "words.txt", "--max-error", "0.9").out
    assert printed.split()[1] == WORDS[1][::-1]
    views = cli.json("inspect", "run", "abca")["inputs"][0]["views"]
    assert views[0]["keys"] == [*"abcaabca"] and len(views[0]["attentions"]) == 1
    assert len(cli.json("heads", "run", "--inputs", "3")["heads"]) > 1
    assert cli.json("ablate", "run", "--parts", "layers")["parts"]
    costs = cli.json("cost", "recipe.toml")["lengths"][0]
    assert costs["parameters"] > 0 and (costs["B"], costs["T"]) == (32, 16)
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "exact match" in page.lower() and "Letters" in page
