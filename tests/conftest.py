"""Fixtures; shapes of tensors are checked at each call, and a worker computes on one thread."""

import os

# Two workers with two threads each on two cores would wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

from jaxtyping import install_import_hook

# Folders whose functions annotate shapes.
FOLDERS = (
    "attention",
    "batch",
    "claims",
    "decode",
    "design",
    "inspection",
    "layers",
    "models",
    "training",
)
install_import_hook([f"harken.{folder}" for folder in FOLDERS], "beartype.beartype")

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from harken.synthetic.people import PeopleConfig, PeopleFiles, write_people
from small_recipe import SMALL

torch.set_num_threads(1)
# No deadlines on a loaded machine, and the same examples in every run.
settings.register_profile("harken", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("harken")


@pytest.fixture(autouse=True)
def _tiny_numbers() -> Iterator[None]:
    """Undo the flushing of denormal numbers that a run enables."""
    os.environ.pop("COLUMNS", None)  # set by pytest-xdist; tables in a pipe obey it
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> PeopleFiles:
    """Write texts and questions about forty fictional people."""
    config = PeopleConfig(people=40, places=8, biographies=2)
    return write_people(config, tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="session")
def recipe_file(people: PeopleFiles) -> Path:
    """Write a recipe next to the people, with relative paths."""
    path = people.texts.parent / "recipe.toml"
    path.write_text(
        'task = "answer"\nseed = 5\n\n[data]\npretrain = "people.txt"\n'
        'train = "questions.train.tsv"\ndev = "questions.test.tsv"\n',
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="session")
def small_run(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a small model; tests that change the run copy it first."""
    from harken.pipeline import train
    from harken.recipe import load_recipe

    folder = tmp_path_factory.mktemp("runs") / "small"
    train(load_recipe(recipe_file, SMALL), folder)
    return folder


@pytest.fixture(scope="session")
def untrained_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a task to the folder of a run with its initial weights.

    The files of `small_files.py` are in the folder two levels above.
    """
    from harken import config
    from harken.cli.new import recipe_text
    from harken.files import write_tensors
    from harken.recipe import TASKS, load_recipe
    from harken.run import MODEL, RECIPE, TOKENIZER
    from harken.training.checkpoint import model_state, write_digests
    from small_files import SMALL as SMALL_OF
    from small_files import write_files

    folder = tmp_path_factory.mktemp("every-task")
    write_files(folder)

    @cache
    def run_of(name: str) -> Path:
        files, keys = next(iter(TASKS[name].layout.calls.items()))
        roles = dict(zip(keys, (folder / file for file in files.split()), strict=True))
        path, run = folder / f"{name}.toml", folder / "runs" / name
        path.write_text(recipe_text(name, roles, None, folder), encoding="utf-8")
        run.mkdir(parents=True)
        recipe = load_recipe(path, SMALL_OF[name])
        task = TASKS[name]
        vocabulary = task.fit(recipe, task.read_splits(recipe)["train"])
        (run / RECIPE).write_text(config.dumps(recipe), encoding="utf-8")
        (run / TOKENIZER).write_text(vocabulary.to_json(), encoding="utf-8")
        write_tensors(run / MODEL, model_state(task.build(recipe, vocabulary.sizes)))
        write_digests(run, {file: file for file in (RECIPE, TOKENIZER, MODEL)})
        return run

    return run_of
