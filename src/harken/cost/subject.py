"""What is to be costed: a recipe, sizes that only data would tell, and its model without tensors.

Sizes that a recipe does not state have defaults, which `Subject.assumed` says in words: the entries
of a vocabulary, the length of a text or sound, and how long a text belongs to a sound. Nothing is
read from files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from harken.encode.subwords import CharactersConfig
from harken.errors import UserError
from harken.recipe import Recipe, task_of
from harken.tasks.answer import AnswerRecipe
from harken.tasks.caption import CaptionRecipe
from harken.tasks.fill import FillRecipe
from harken.tasks.lm import LanguageModelRecipe
from harken.tasks.tag import TagRecipe
from harken.tasks.transcribe import TranscribeRecipe
from harken.tasks.translate import TranslateRecipe
from harken.training.loop import StageConfig
from harken.training.memory import TRAINING, build_on_meta, check_model_size

CHARACTERS = 360  # 256 bytes, 4 special symbols and about a hundred characters
WORDS = 20_000  # distinct words, where a recipe sets no bound to them
TAGS = 17  # of Universal Dependencies
LETTERS = 12  # of the longest word in a batch
SENTENCE = 32  # tokens
CAPTION = 16
FRAMES = 400  # four seconds, a frame every 10 ms
FRAMES_A_SYMBOL = 16


class Counted(NamedTuple):
    """Stands in for what is fitted to data: only its sizes are asked for."""

    entries: int
    character_count: int = CHARACTERS
    tags: tuple[str, ...] = ("",) * TAGS

    def __len__(self) -> int:
        return self.entries


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A recipe with all sizes known, and its model on the meta device."""

    recipe: Recipe
    model: nn.Module
    vocabulary: int
    sizes: Mapping[str, int]  # by letter; see `models.py`
    assumed: tuple[str, ...]  # what neither the recipe nor the caller said

    def built(self) -> nn.Module:
        """The same model with tensors, for measuring."""

        def build() -> nn.Module:
            return task_of(self.recipe).build(self.recipe, counted(self.vocabulary))

        cpu = torch.device("cpu")
        check_model_size(build, "recipe", bytes_per_parameter=TRAINING, device=cpu)
        return build()


def subject_of(
    recipe: Recipe,
    *,
    length: int | None = None,
    batch: int | None = None,
    vocabulary: int | None = None,
) -> Subject:
    """Fill in what is not said."""
    assumed: list[str] = []
    if vocabulary is None:
        vocabulary, said = vocabulary_of(recipe)
        assumed += [] if said else [f"a vocabulary of {vocabulary:,} (--vocabulary)"]
    if length is None:
        length, said = length_of(recipe)
        assumed += [] if said else [f"a length of {length} (--length)"]
    if isinstance(recipe, TagRecipe) and recipe.model.characters.width:
        assumed.append(f"words of {LETTERS} letters, no two alike")
    if isinstance(recipe, TranscribeRecipe):
        assumed.append(f"a symbol every {FRAMES_A_SYMBOL} frames")
    model = build_on_meta(lambda: task_of(recipe).build(recipe, counted(vocabulary)), "recipe")
    longest = longest_of(model)
    if longest is not None and length > longest:
        raise UserError(
            f"length {length}: the model takes at most {longest}",
            fix=f"override the model's length, for example model.length={length}",
        )
    rows = batch if batch is not None else rows_of(recipe, length)
    return Subject(
        recipe=recipe,
        model=model,
        vocabulary=vocabulary,
        sizes=letters_of(recipe, model, length, rows),
        assumed=tuple(assumed),
    )


def counted(vocabulary: int) -> Any:
    """What a task's `build` asks for."""
    return Counted(vocabulary)


def vocabulary_of(recipe: Recipe) -> tuple[int, bool]:
    """(entries, whether the recipe says so)."""
    encode: Any = recipe.encode
    units = getattr(encode, "units", encode)
    if isinstance(units, CharactersConfig):
        return CHARACTERS, False
    size = getattr(units, "size", None)
    return (WORDS, False) if size is None else (int(size), True)


def length_of(recipe: Recipe) -> tuple[int, bool]:
    """(tokens, words or frames of a row, whether the recipe says so)."""
    if isinstance(recipe, LanguageModelRecipe):
        return recipe.window, True
    if isinstance(recipe, AnswerRecipe):
        return recipe.model.length, True
    if isinstance(recipe, TranscribeRecipe):
        return FRAMES, False
    return (CAPTION if isinstance(recipe, CaptionRecipe) else SENTENCE), False


def stage_of(recipe: Recipe) -> StageConfig:
    """The stage that a run spends its time in."""
    training: Any = recipe.training
    if isinstance(recipe, LanguageModelRecipe | FillRecipe):
        return recipe.training
    names = {"answer": "pretrain", "tag": "tags", "translate": "pairs"}
    names |= {"transcribe": "speech", "caption": "captions"}
    return cast(StageConfig, getattr(training, names[recipe.task]))


def rows_of(recipe: Recipe, length: int) -> int:
    """Rows of a batch of training."""
    stage: Any = stage_of(recipe)
    if isinstance(recipe, CaptionRecipe):
        return int(stage.batch_captions)
    budget = stage.batch_frames if isinstance(recipe, TranscribeRecipe) else stage.batch_tokens
    return max(1, int(budget) // length)


def longest_of(model: nn.Module) -> int | None:
    """The longest input that a model takes."""
    names = ("longest_frames", "longest_source", "longest_output", "length")
    found = [getattr(model, name) for name in names if getattr(model, name, None) is not None]
    return min(found[:1], default=None)


def letters_of(recipe: Recipe, model: nn.Module, length: int, rows: int) -> dict[str, int]:
    """The letters of `models.py` for rows of this length."""
    if isinstance(recipe, TranscribeRecipe):
        text = max(1, length // FRAMES_A_SYMBOL)
        return {"B": rows, "S": length, "T": text, "F": recipe.encode.filterbank.bins}
    if isinstance(recipe, TranslateRecipe):
        return {"B": rows, "M": length, "T": length}
    return {"B": rows, "T": length, "W": LETTERS}
