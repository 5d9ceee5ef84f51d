"""Recipes, and the registry of tasks: a new task is a line of `TASKS` and a member of `Recipe`."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from os import PathLike
from pathlib import Path
from typing import Any

from harken import config
from harken.tasks.answer import AnswerRecipe, AnswerTask
from harken.tasks.caption import CaptionTask
from harken.tasks.caption_data import CaptionRecipe
from harken.tasks.fill import FillRecipe, FillTask
from harken.tasks.lm import LanguageModelRecipe, LanguageModelTask
from harken.tasks.tag import TagRecipe, TagTask
from harken.tasks.task import Task
from harken.tasks.transcribe import TranscribeTask
from harken.tasks.transcribe_predictor import TranscribeRecipe
from harken.tasks.translate import TranslateRecipe, TranslateTask

Recipe = (
    AnswerRecipe
    | CaptionRecipe
    | FillRecipe
    | LanguageModelRecipe
    | TagRecipe
    | TranscribeRecipe
    | TranslateRecipe
)

AnyTask = Task[Any, Any, Any, Any]

TASKS: dict[str, AnyTask] = {
    "answer": AnswerTask(),
    "tag": TagTask(),
    "fill": FillTask(),
    "lm": LanguageModelTask(),
    "caption": CaptionTask(),
    "transcribe": TranscribeTask(),
    "translate": TranslateTask(),
}


def recipe_type() -> Any:
    """Return the union of the recipes of all registered tasks."""
    return reduce(or_, (task.recipe_type for task in TASKS.values()))


def load_recipe(path: str | PathLike[str], overrides: str | Sequence[str] = ()) -> Recipe:
    """Read a recipe and check every key and value.

    Arguments:
        path: a TOML file.
        overrides: values to change, each of the form "model.width=64".

        recipe = harken.load_recipe("recipe.toml", ["training.steps=100"])
    """
    changes = [overrides] if isinstance(overrides, str) else overrides
    recipe: Recipe = config.load_config(recipe_type(), Path(path), changes)
    return recipe


def task_of(recipe: Recipe) -> AnyTask:
    """Return the task of a recipe."""
    return TASKS[recipe.task]
