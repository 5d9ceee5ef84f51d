"""The root record: what a run is made from, and nothing else decides it.

A new task is one file in `tasks/`, one member of `Recipe` and one line of `TASKS`.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from harken import config
from harken.tasks.answer import AnswerRecipe, AnswerTask
from harken.tasks.caption import CaptionRecipe, CaptionTask
from harken.tasks.fill import FillRecipe, FillTask
from harken.tasks.lm import LanguageModelRecipe, LanguageModelTask
from harken.tasks.tag import TagRecipe, TagTask
from harken.tasks.task import Task
from harken.tasks.transcribe import TranscribeRecipe, TranscribeTask
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

TASKS: dict[str, Task] = {
    "answer": AnswerTask(),
    "caption": CaptionTask(),
    "fill": FillTask(),
    "lm": LanguageModelTask(),
    "tag": TagTask(),
    "transcribe": TranscribeTask(),
    "translate": TranslateTask(),
}


def load_recipe(path: str | PathLike[str], overrides: str | Sequence[str] = ()) -> Recipe:
    """Read a recipe and check every key and value.

    Arguments:
        path: a TOML file.
        overrides: values to change, each of the form "model.width=64".

        recipe = harken.load_recipe("recipe.toml", ["training.steps=100"])
    """
    if isinstance(overrides, str):
        overrides = [overrides]
    recipe: Recipe = config.load(Recipe, Path(path), overrides)
    return recipe


def task_of(recipe: Recipe) -> Task:
    """The code behind a recipe's `task`."""
    return TASKS[recipe.task]
