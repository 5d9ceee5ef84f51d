"""The Python interface: `harken.load_recipe`, `harken.train`, `harken.load` and `Run`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harken
from harken.inspection.store import open_recording, record_to_disk
from harken.pipeline import train
from harken.run import Run
from harken.synthetic.people import PeopleFiles
from harken.training.loop import Event
from small_recipe import SMALL

STEPS = ("training.pretrain.steps=1", "training.finetune.steps=0")


class OtherPath:
    """A path that is neither a `str` nor a `pathlib.Path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.fixture(scope="module")
def run(small_run: Path) -> Run:
    return harken.load(small_run)


@pytest.mark.parametrize("kind", [str, OtherPath])
def test_paths_may_be_strings_or_path_objects(
    kind: Callable[[Path], str | os.PathLike[str]],
    recipe_file: Path,
    people: PeopleFiles,
    tmp_path: Path,
) -> None:
    recipe = harken.load_recipe(kind(recipe_file), [*SMALL, *STEPS])
    assert recipe == harken.load_recipe(recipe_file, [*SMALL, *STEPS])
    assert harken.load_recipe(kind(recipe_file), "seed=7").seed == 7
    trained = harken.train(recipe, kind(tmp_path / "run"))
    assert trained.folder == tmp_path / "run"
    loaded = harken.load(kind(tmp_path / "run"))
    assert loaded.examples("dev", kind(people.test)) == loaded.examples("dev", [people.test])
    assert loaded.evaluate(files=[kind(people.test)]).n == 20
    with record_to_disk(loaded.model, kind(tmp_path / "attention")):
        loaded.predict("John")
    assert open_recording(kind(tmp_path / "attention")).calls


def test_a_single_input_gives_a_list_of_one_prediction(run: Run) -> None:
    (prediction,) = run.predict("John")
    assert prediction.input == "John"
    assert [prediction] == run.predict(["John"])
    assert run.predict(text for text in ["John", "Ada"]) == run.predict(["John", "Ada"])
    assert run.predict([]) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.predict(None), "inputs: expected a string or a list of strings, got None"),
        (lambda run: run.predict(["a", 3]), r"inputs\[1\]: expected a string, got '3' \(int\)"),
        (lambda run: run.predict([b"John"]), r"inputs\[0\]: expected a string, .* \(bytes\)"),
        (
            lambda run: run.predict([Path("a.txt")]),
            r"\[0\]: expected a string, got 'a.txt' \(.*Path",
        ),
        (lambda run: run.predict("John", nbest=0), "nbest: expected 1 or more, got 0"),
        (
            lambda run: run.predict(["a.wav"], times=True),
            "task 'answer' does not predict word times",
        ),
        (lambda run: run.evaluate(condition="noise:10"), "task 'answer' has no conditions"),
        (lambda run: run.evaluate("validation"), r"no data.validation .*split='dev'"),
        (lambda run: run.evaluate(files=["a", "b"]), "expected one file of questions, got 2"),
        (lambda run: run.evaluate(files=[3]), r"files\[0\]: expected a path, got '3' \(int\)"),
        (lambda run: run.evaluate(files=3), "files: expected a path or a list of paths, got 3"),
        (
            lambda run: harken.load(run.folder, device="gpu"),
            "device: unknown value 'gpu'.*'auto', 'cpu', 'cuda' or 'mps'",
        ),
        (lambda run: harken.load(run.folder / "none"), "run folder not found: "),
        (lambda run: harken.load(run.folder / "recipe.toml"), "not a run folder: .*recipe.toml"),
    ],
)
def test_wrong_arguments(run: Run, call: Callable[[Run], Any], message: str) -> None:
    with pytest.raises(harken.UserError, match=message) as error:
        call(run)
    assert "--" not in str(error.value) or "command line" in str(error.value)


def test_objects_have_a_short_repr(run: Run, people: PeopleFiles) -> None:
    evaluation = run.evaluate()
    with harken.record(run.model) as recorded:
        predictions = run.predict("John")
    for value in (run, evaluation, recorded[0], predictions[0], run.vocabulary):
        assert len(repr(value)) < 400
        assert repr(value).count("\n") < 5
    assert repr(run).startswith("Run(task='answer', folder=")
    assert "parameters=" in repr(run)
    assert repr(evaluation).startswith("Evaluation(n=20, exact_match=")
    assert "weights=(1, 2, " in repr(recorded[-1])


@pytest.mark.parametrize("task", ["tag", "transcribe"])
def test_runs_of_other_tasks(untrained_run: Callable[[str], Path], task: str) -> None:
    """A word vocabulary has a short repr; a sound may be a path object."""
    run = harken.load(untrained_run(task))
    assert all(len(repr(value)) < 400 for value in (run, run.vocabulary, run.evaluate()))
    if task == "transcribe":
        sound = run.folder.parent.parent / "tone.wav"
        assert run.predict(sound) == run.predict([str(sound)])
        assert [word.input for word in run.predict(sound, times=True)] == [str(sound)]


@pytest.mark.parametrize(
    ("progress", "terminal", "notebook", "shown"),
    [
        (None, False, False, False),
        (None, True, False, True),
        (None, False, True, True),
        (True, False, False, True),
        (False, True, True, False),
    ],
)
def test_training_shows_progress_on_a_terminal_or_in_a_notebook(
    recipe_file: Path,
    tmp_path: Path,
    progress: bool | None,
    terminal: bool,
    notebook: bool,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    events: list[Event] = []
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: notebook)
    recipe = harken.load_recipe(recipe_file, [*SMALL, *STEPS])
    train(recipe, tmp_path / "mine", progress=progress, listener=events.append)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("mine: pretrain" in printed.err) == shown
    assert bool(printed.err) == shown
    assert events
