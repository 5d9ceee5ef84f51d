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

import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from command_line import Cli
from harken.synthetic.people import PeopleConfig, PeopleFiles, write_people
from small_recipe import SMALL

torch.set_num_threads(1)
# No deadlines on a loaded machine, and the same examples in every run.
settings.register_profile("harken", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("harken")


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    """Undo the settings of the process that a run changes."""
    os.environ.pop("COLUMNS", None)  # set by pytest-xdist; tables in a pipe obey it
    yield
    torch.set_flush_denormal(False)
    torch.set_num_threads(1)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 96 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", disk]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


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
    from small_files import SMALL as SMALL_OF
    from untrained import task_recipe
    from untrained import untrained_run as write_run

    folder = tmp_path_factory.mktemp("every-task")

    @cache
    def run_of(name: str) -> Path:
        return write_run(task_recipe(name, folder, SMALL_OF[name]), folder / "runs" / name)

    return run_of
