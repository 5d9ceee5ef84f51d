"""A training step of a recipe without data: model, random batch, loss and optimizers.

This is the only file of `cost/` that knows tasks. Sizes that a recipe does not state, such as the
size of the vocabulary or the length of a sentence, have defaults; `Workload.assumed` lists those in
use. Rows have no padding. No file is read.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from harken.batch.blanks import BlankBatch
from harken.batch.captions import CaptionBatch
from harken.batch.padding import TokenBatch
from harken.batch.pairs import PairBatch
from harken.batch.utterances import UtteranceBatch
from harken.batch.words import TaggedBatch
from harken.encode.subwords import CharactersConfig
from harken.errors import UserError
from harken.layers.frontends import FeatureProjectionConfig
from harken.recipe import Recipe, task_of
from harken.tasks import answer, caption, fill, lm, tag, transcribe, translate
from harken.tasks.answer import AnswerRecipe
from harken.tasks.caption import CaptionRecipe
from harken.tasks.fill import FillRecipe
from harken.tasks.lm import LanguageModelRecipe
from harken.tasks.tag import TagRecipe
from harken.tasks.transcribe import TranscribeRecipe
from harken.tasks.translate import TranslateRecipe
from harken.training.loop import StageConfig

CHARACTERS = 360  # 256 bytes, 4 special symbols and about a hundred characters
WORDS = 20_000  # distinct words if the recipe sets no limit
TAGS = 17  # of Universal Dependencies
LETTERS = 12  # of the longest word in a batch
SENTENCE = 32  # tokens
CAPTION = 16
FRAMES = 400  # four seconds, one frame every 10 ms
FRAMES_PER_SYMBOL = 16
FIRST_TOKEN = 4  # lower token numbers are special


class VocabularySizes(NamedTuple):
    """Stands in for a vocabulary: a task's `build` reads only sizes."""

    entries: int
    character_count: int = CHARACTERS
    tags: tuple[str, ...] = ("",) * TAGS

    def __len__(self) -> int:
        return self.entries


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One training step of a recipe at given sizes.

    `sizes`: B rows, T tokens, M source tokens, S frames, F features per frame, W letters per word.
    """

    recipe: Recipe
    vocabulary: int
    sizes: Mapping[str, int]
    assumed: tuple[str, ...] = ()  # defaults in use, in words

    @property
    def stage(self) -> StageConfig:
        """The stage that a run spends most of its time in."""
        if isinstance(self.recipe, LanguageModelRecipe | FillRecipe):
            return self.recipe.training
        names = {"answer": "pretrain", "tag": "tags", "translate": "pairs"}
        names |= {"transcribe": "speech", "caption": "captions"}
        return cast(StageConfig, getattr(self.recipe.training, names[self.recipe.task]))

    def build(self) -> nn.Module:
        """The model in training mode."""
        sizes: Any = VocabularySizes(self.vocabulary)
        return task_of(self.recipe).build(self.recipe, sizes).train()

    def batch(self, seed: int = 0) -> Any:
        """Random inputs and targets."""
        return random_batch(self, torch.Generator().manual_seed(seed))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss that training minimizes, summed over targets."""
        recipe = self.recipe
        if isinstance(recipe, TranslateRecipe):
            return translate.smoothed_loss(model, batch, recipe.training.pairs.smoothing)
        if isinstance(recipe, TranscribeRecipe):
            return transcribe.weighted_loss(model, batch, recipe.training.speech)
        if isinstance(recipe, CaptionRecipe):
            return caption.caption_loss(model, batch, recipe.training.captions.smoothing)
        if recipe.task == "lm":
            return lm.losses(model, batch).sum()
        if recipe.task == "tag":
            return tag.tags_loss(model, batch)
        return (fill.loss if recipe.task == "fill" else answer.loss)(model, batch)


def workload(
    recipe: Recipe,
    *,
    length: int | None = None,
    batch: int | None = None,
    vocabulary: int | None = None,
) -> Workload:
    """A step of a recipe; sizes that are not given come from the recipe or from the defaults."""
    assumed: list[str] = []
    if vocabulary is None:
        vocabulary, is_stated = default_vocabulary(recipe)
        assumed += [] if is_stated else [f"a vocabulary of {vocabulary:,} (--vocabulary)"]
    if length is None:
        length, is_stated = default_length(recipe)
        assumed += [] if is_stated else [f"a length of {length} (--length)"]
    if isinstance(recipe, TagRecipe) and recipe.model.characters.width:
        assumed.append(f"words of {LETTERS} letters, all different")
    if isinstance(recipe, TranscribeRecipe):
        assumed.append(f"one symbol per {FRAMES_PER_SYMBOL} frames")
    rows = batch if batch is not None else default_rows(recipe, length)
    sizes = {"B": rows, "T": length, "W": LETTERS}
    if isinstance(recipe, TranscribeRecipe):
        text = max(1, length // FRAMES_PER_SYMBOL)
        sizes = {"B": rows, "S": length, "T": text, "F": recipe.encode.filterbank.bins}
    elif isinstance(recipe, TranslateRecipe):
        sizes = {"B": rows, "M": length, "T": length}
    result = Workload(recipe=recipe, vocabulary=vocabulary, sizes=sizes, assumed=tuple(assumed))
    check_length(result, length)
    return result


def check_length(step: Workload, length: int) -> None:
    """Reject rows that are longer than the model's inputs."""
    with torch.device("meta"):
        model = step.build()
    names = ("longest_frames", "longest_source", "longest_output", "length")
    limits = [limit for name in names if (limit := getattr(model, name, None)) is not None]
    if limits and length > limits[0]:
        raise UserError(
            f"length {length}: the model takes at most {limits[0]}",
            fix=f"override the model's length, for example model.length={length}",
        )


def default_vocabulary(recipe: Recipe) -> tuple[int, bool]:
    """Entries of the vocabulary, and whether the recipe states them."""
    encode: Any = recipe.encode
    units = getattr(encode, "units", encode)
    if isinstance(units, CharactersConfig):
        return CHARACTERS, False
    size = getattr(units, "size", None)
    return (WORDS, False) if size is None else (int(size), True)


def default_length(recipe: Recipe) -> tuple[int, bool]:
    """TokenGrid, words or frames of a row, and whether the recipe states them."""
    if isinstance(recipe, LanguageModelRecipe):
        return recipe.window, True
    if isinstance(recipe, AnswerRecipe):
        return recipe.model.length, True
    if isinstance(recipe, TranscribeRecipe):
        return FRAMES, False
    return (CAPTION if isinstance(recipe, CaptionRecipe) else SENTENCE), False


def default_rows(recipe: Recipe, length: int) -> int:
    """Rows of a training batch."""
    stage: Any = Workload(recipe=recipe, vocabulary=0, sizes={}).stage
    if isinstance(recipe, CaptionRecipe):
        return int(stage.batch_captions)
    budget = stage.batch_frames if isinstance(recipe, TranscribeRecipe) else stage.batch_tokens
    return max(1, int(budget) // length)


def random_batch(step: Workload, generator: torch.Generator) -> Any:
    """Rows without padding."""
    recipe, sizes = step.recipe, step.sizes
    rows, time = sizes["B"], sizes["T"]

    def tokens(*shape: int, below: int = step.vocabulary) -> Tensor:
        return torch.randint(min(FIRST_TOKEN, below - 1), below, shape, generator=generator)

    present = torch.ones(rows, time, dtype=torch.bool)
    if isinstance(recipe, FillRecipe):
        share = 1.0 if recipe.model.together else recipe.training.blanks
        order = torch.rand(rows * time, generator=generator).argsort()
        blanks = (order < round(share * rows * time)).view(rows, time)
        words = tokens(rows, time)
        return BlankBatch(words, present, blanks, words[blanks])
    if isinstance(recipe, TranslateRecipe):
        source_present = torch.ones(rows, sizes["M"], dtype=torch.bool)
        source = tokens(rows, sizes["M"])
        return PairBatch(source, source_present, tokens(rows, time), tokens(rows, time))
    if isinstance(recipe, TranscribeRecipe):
        frames = torch.randn(rows, sizes["S"], sizes["F"], generator=generator)
        frames_present = torch.ones(rows, sizes["S"], dtype=torch.bool)
        return UtteranceBatch(frames, frames_present, tokens(rows, time), tokens(rows, time))
    if isinstance(recipe, CaptionRecipe):
        size = recipe.encode.pictures
        shape = (size.channels, size.rows, size.columns)
        if isinstance(recipe.model.front, FeatureProjectionConfig):
            shape = (size.columns, size.rows, size.channels)
        pictures = torch.randn(rows, *shape, generator=generator)
        return CaptionBatch(pictures, tokens(rows, time), tokens(rows, time))
    if recipe.task == "tag":
        spellings = tokens(rows * time, sizes["W"], below=CHARACTERS)
        forms = torch.arange(rows * time).view(rows, time)
        letters_present = torch.ones_like(spellings, dtype=torch.bool)
        tags = tokens(rows, time, below=TAGS)
        return TaggedBatch(tokens(rows, time), forms, spellings, letters_present, present, tags)
    return TokenBatch(tokens(rows, time), tokens(rows, time))


WIDTHS = {"width", "hidden", "letter", "inner", "head_width", "key_width"}


def model_letters(recipe: Recipe) -> dict[str, int]:
    """J, the model's width, and L (and D), the layers of its first (and second) stack."""
    width = next(value for path, value in settings(recipe.model) if path[-1] == "width")
    return {"J": width, **{letter: value for letter, (_, value) in stacks(recipe).items()}}


def stacks(recipe: Recipe) -> dict[str, tuple["Path", int]]:
    """Where the model's config states the layers L and D, and how many there are."""
    layers = [(path, value) for path, value in settings(recipe.model) if path[-1] == "layers"]
    return dict(zip("LD", [(path, value) for path, value in layers if value > 0], strict=False))


def resized(step: Workload, sizes: Mapping[str, int]) -> Workload:
    """The same step with other sizes; all widths of the model grow in proportion to J."""
    width, found = model_letters(step.recipe)["J"], stacks(step.recipe).items()
    changes = {path: sizes[letter] for letter, (path, _) in found if letter in sizes}
    for path, value in settings(step.recipe.model):
        if path[-1] in WIDTHS and "J" in sizes:
            changes[path] = value * sizes["J"] // width
    recipe: Any = replace(step.recipe, model=changed(step.recipe.model, changes))
    inputs = {letter: sizes.get(letter, value) for letter, value in step.sizes.items()}
    return replace(step, recipe=recipe, vocabulary=sizes.get("V", step.vocabulary), sizes=inputs)


Path = tuple[str, ...]


def settings(config: Any, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """All whole numbers of a config with their paths."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from settings(value, (*path, field.name))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*path, field.name), value


def changed(config: Any, changes: Mapping[Path, int]) -> Any:
    """A config with some numbers replaced."""
    values: dict[str, Any] = {path[0]: value for path, value in changes.items() if len(path) == 1}
    for name in {path[0] for path in changes if len(path) > 1}:
        inner = {
            path[1:]: value for path, value in changes.items() if path[0] == name and len(path) > 1
        }
        values[name] = changed(getattr(config, name), inner)
    return replace(config, **values)


def language_model_loss(rows: int, length: int, vocabulary: int) -> Callable[[nn.Module], Tensor]:
    """The loss of any language model on random tokens."""
    tokens = torch.randint(min(FIRST_TOKEN, vocabulary - 1), vocabulary, (rows, length))
    return lambda model: lm.losses(model, TokenBatch(tokens, tokens)).sum()
