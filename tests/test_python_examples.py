"""Training on examples from Python: exact resume, free folders after errors, several processes."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harken
from harken.pipeline import train
from harken.recipe import Recipe, load_recipe
from harken.training.loop import Event, StepDone
from harken.training.signals import Interrupted
from small_files import contents, error_of, sentence
from untrained import equal_weights

RECIPE = """
task = "fill"
[data]
train = "replaced"
columns.text = "review"
[model]
width = 16
[training]
steps = 5
batch_tokens = 64
save_every = 2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return load_recipe(tmp_path / "recipe.toml")


def reviews(count: int = 23) -> Iterator[dict[str, Any]]:
    """Examples with numbers of numpy, and a column that is not used."""
    for number in range(count):
        review = np.int64(number) if number == 5 else sentence(number)
        yield {"review": review, "image": object()}


def test_a_run_is_resumed_exactly(recipe: Recipe, tmp_path: Path) -> None:
    """With the same examples, or from the recipe of the run; other examples change nothing."""

    def interrupt(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            raise Interrupted(signal.SIGTERM)

    whole = train(recipe, tmp_path / "whole", examples={"train": reviews()})
    assert whole.evaluate().n == harken.load(tmp_path / "whole").evaluate().n
    for name in ("python", "command"):
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / name, examples={"train": reviews()}, listener=interrupt)
    before, other = contents(tmp_path / "python"), {"train": reviews(22)}
    error = error_of(train, recipe, tmp_path / "python", examples=other, resume=True)
    assert "examples['train']: these are not the examples in" in error.message
    assert contents(tmp_path / "python") == before
    train(recipe, tmp_path / "python", examples={"train": reviews()}, resume=True)
    train(load_recipe(tmp_path / "command" / "recipe.toml"), tmp_path / "command", resume=True)
    for name in ("python", "command"):
        assert equal_weights(tmp_path / "whole", tmp_path / name)


WRONG: dict[str, tuple[Any, str]] = {
    "key": ({"tain": []}, "examples: unknown value 'tain' (expected 'train', 'dev' or 'test')"),
    "list": ([{"review": "a"}], "examples: expected a mapping, got list"),
    "row": ({"train": ["a"]}, "examples['train'][0]: expected a mapping with the keys review"),
    "column": ({"train": [{"Review": "a"}]}, "examples['train'][0] has no column 'review'"),
    "no rows": ({"train": []}, "examples['train']: no examples"),
    "value": ({"train": [{"review": object()}]}, "examples['train'][0]: a value of type object"),
    "NaN": ({"train": [{"review": float("nan")}]}, "examples['train'][0]: Out of range float"),
    "surrogate": ({"train": [{"review": "\ud800"}]}, "examples['train'][0]: expected Unicode"),
    "one example": ({"train": [{"review": "a"}]}, "expected at least 2 distinct examples"),
    "dev": ({"train": reviews(), "dev": [{"review": ["a"]}]}, "dev.jsonl:1: wrong value of 'rev"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_examples_leave_the_folder_free(case: str, recipe: Recipe, tmp_path: Path) -> None:
    examples, message = WRONG[case]
    error = error_of(train, recipe, tmp_path / "run", examples=examples)
    assert message in error.message
    assert not (tmp_path / "run").exists()


def test_files_of_others_are_kept(recipe: Recipe, tmp_path: Path) -> None:
    """A folder `examples` that is already there, also that of a process that was killed."""
    mine = tmp_path / "run" / "examples" / "train.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    error = error_of(train, recipe, tmp_path / "run", examples={"train": reviews()})
    assert "these are not the examples in" in error.message and mine.read_text() == "mine"
    mine.unlink()
    assert (
        train(recipe, tmp_path / "run", examples={"train": reviews()}).evaluate().n == 14
    )  # words
    speech = tmp_path / "speech.toml"
    speech.write_text('task = "transcribe"\n[data]\ntrain = "a"\n')
    error = error_of(train, load_recipe(speech), tmp_path / "other", examples={"train": []})
    assert "task 'transcribe' reads its examples from files" in error.message


SCRIPT = """
import sys
import harken
from harken.training.distributed import joined
recipe = harken.load_recipe("recipe.toml", ["training.micro_batches=2"])
texts = [{"review": f"they duck and swim here {number} times"} for number in range(23)]
with joined():
    harken.train(recipe, sys.argv[1], examples={"train": texts})
"""


@pytest.mark.slow
def test_two_processes_give_the_same_weights(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for command, run in (([sys.executable], "one"), (launcher, "two")):
        subprocess.run([*command, "script.py", run], cwd=tmp_path, check=True, timeout=200)
    assert equal_weights(tmp_path / "one", tmp_path / "two")
