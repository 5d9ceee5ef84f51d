"""Recipes, and the registry of tasks: a new task is a file in `tasks/` and a name in `TASKS`."""

from collections import UserDict
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from importlib import import_module
from operator import or_
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from harken import config
from harken.errors import UserError
from harken.tasks.task import Task
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

AnyTask = Task[Any, Any, Any, Any]


class TrainingTable(Protocol):
    """What the tables [training] of all recipes have."""

    @property
    def runtime(self) -> RuntimeConfig: ...
    @property
    def track(self) -> tuple[Tracker, ...]: ...


class Recipe(Protocol):
    """What the recipes of all tasks have."""

    @property
    def task(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def data(self) -> Any: ...
    @property
    def encode(self) -> Any: ...
    @property
    def model(self) -> Any: ...
    @property
    def training(self) -> TrainingTable: ...


class TaskRegistry(UserDict[str, AnyTask]):
    """Tasks by name; a task is imported when it is first read, so most commands import only one."""

    def __init__(self, **classes: str) -> None:
        """Register the class of each task, which is in `harken/tasks/NAME.py`."""
        super().__init__()
        self.data: dict[str, Any] = dict(classes)

    def __getitem__(self, name: str) -> AnyTask:
        if isinstance(self.data[name], str):
            task_class = getattr(import_module(f"harken.tasks.{name}"), self.data[name])
            self.data[name] = task_class()
        task: AnyTask = self.data[name]
        return task


TASKS = TaskRegistry(
    answer="AnswerTask",
    classify="ClassifyTask",
    tag="TagTask",
    fill="FillTask",
    lm="LanguageModelTask",
    caption="CaptionTask",
    transcribe="TranscribeTask",
    translate="TranslateTask",
)


def recipe_type() -> Any:
    """Return the union of the recipe types of `TASKS`, including tasks added at runtime."""
    return reduce(or_, (task.recipe_type for task in TASKS.values()))


def load_recipe(path: str | PathLike[str], overrides: str | Sequence[str] = ()) -> Recipe:
    """Read a recipe and check every key and value.

    Arguments:
        path: a TOML file.
        overrides: values to change, each of the form "model.width=64".

        recipe = harken.load_recipe("recipe.toml", ["training.steps=100"])
    """
    path, changes = Path(path), [overrides] if isinstance(overrides, str) else overrides
    recipe: Recipe
    with suppress(UserError):
        task = config.load_tree(path, changes).get("task")
        if isinstance(task, str) and task in TASKS:
            recipe = config.load_config(TASKS[task].recipe_type, path, changes)
            return recipe
    # With the recipes of all tasks, an error can name the task that a key belongs to.
    recipe = config.load_config(recipe_type(), path, changes)
    return recipe


def task_of(recipe: Recipe) -> AnyTask:
    """Return the task of a recipe."""
    return TASKS[recipe.task]
