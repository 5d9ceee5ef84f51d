"""Recipes, and the registry of tasks: a new task is a file in `tasks/` and a name in `TASKS`."""

from collections import UserDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from importlib import import_module
from operator import or_
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from harken import config
from harken.errors import UserError
from harken.inputs import is_file, short_path
from harken.models.huggingface import read_folder_config
from harken.models.huggingface_files import CONFIG
from harken.run_folder import RECIPE
from harken.tasks.task import Task
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

FREE_KEYS = ("start_from", "freeze", "init_heads")  # not part of an architecture
CHANGEABLE = ("dropout", "unk_dropout", "min_frames")  # defaults that a recipe may change
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

    The run or the folder in `model.start_from` determines the tokenizer and the architecture.

        recipe = harken.load_recipe("recipe.toml", ["training.steps=100"])
    """
    path, changes = Path(path), [overrides] if isinstance(overrides, str) else overrides
    task, folder = None, None
    with suppress(UserError):
        source = config.load_source(path, changes)
        task, folder = source.tree.get("task"), source.path_at("model", "start_from")
    if not isinstance(task, str) or task not in TASKS or folder is None:
        return _load(task, path, changes)
    return _load(task, path, changes, determined_keys(task, folder))


def load_effective_recipe(path: Path) -> Recipe:
    """Read the recipe in a run folder, which has all keys, so `model.start_from` may be missing."""
    with suppress(UserError):
        return _load(config.load_source(path).tree.get("task"), path)
    return _load(None, path)


def _load(
    task: object,
    path: Path,
    overrides: Sequence[str] = (),
    determined: config.Determined | None = None,
) -> Recipe:
    recipe: Recipe
    if isinstance(task, str) and task in TASKS:
        with suppress(UserError):
            recipe = config.load_config(TASKS[task].recipe_type, path, overrides, determined)
            return recipe
    # With the recipes of all tasks, an error can name the task that a key belongs to.
    recipe = config.load_config(recipe_type(), path, overrides, determined)
    return recipe


def determined_keys(name: str, folder: Path) -> config.Determined:
    """Return the keys of a task that the run or folder in `model.start_from` determines."""
    task = TASKS[name]
    if is_file(folder / RECIPE):
        origin, started = folder / RECIPE, load_effective_recipe(folder / RECIPE)
        model, title = started.model, started.task
        others: Mapping[str, object] = {"encode": config.as_plain(started.encode)}
    elif is_file(folder / CONFIG):
        origin, read = folder / CONFIG, read_folder_config(folder)
        model, title, others = read.config, read.model_type, task.pretrained_keys(read.config)
    else:
        raise UserError(
            f"model.start_from = {short_path(folder)}: neither a run folder nor a Hugging Face "
            f"folder (expected {RECIPE} or {CONFIG} in it)",
            fix="name the folder of a finished run, or of a downloaded model",
        )
    keys = task.start_keys(model)
    if keys is None:
        raise UserError(
            f"{origin}: task {name!r} cannot start from a model of {title!r}",
            fix="start from a run of the same task; `tag` and `classify` also start from BERT, "
            "`lm` and `answer` from GPT-2, GPT-NeoX and Llama, and `transcribe` from Whisper",
        )
    fixed = {name: value for name, value in keys.items() if name not in FREE_KEYS}
    values = {"model": fixed, **others}
    return config.Determined(values=values, origin=short_path(origin), defaults=CHANGEABLE)


def frozen_layers(recipe: Recipe) -> int:
    """Return the number of blocks that are not trained, `model.freeze`."""
    return int(getattr(recipe.model, "freeze", 0))


def task_of(recipe: Recipe) -> AnyTask:
    """Return the task of a recipe."""
    return TASKS[recipe.task]
