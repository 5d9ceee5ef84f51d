"""A batch of given sizes that means nothing, and the loss that the task itself would take of it.

With these a training step can be run without data: its time, its memory and its products measured
where the walk only counts them.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from harken.batch.blanks import BlankBatch
from harken.batch.captions import CaptionBatch
from harken.batch.padding import IGNORE, TokenBatch
from harken.batch.pairs import PairBatch
from harken.batch.utterances import UtteranceBatch
from harken.batch.words import TaggedBatch
from harken.cost.subject import CHARACTERS, TAGS, Subject
from harken.cost.walk import blanks_of
from harken.layers.front import MapFrontConfig
from harken.models.writing import writing_loss
from harken.tasks import answer, fill, lm, tag, transcribe, translate
from harken.tasks.caption import CaptionRecipe
from harken.tasks.fill import FillRecipe
from harken.tasks.transcribe import TranscribeRecipe
from harken.tasks.translate import TranslateRecipe

FIRST = 4  # token numbers before it are special


def made_batch(subject: Subject, seed: int = 0) -> Any:
    """Rows without padding, drawn by lot."""
    random = torch.Generator().manual_seed(seed)
    recipe, sizes = subject.recipe, subject.sizes
    rows, time = sizes["B"], sizes["T"]

    def tokens(*shape: int, most: int = subject.vocabulary) -> Tensor:
        return torch.randint(min(FIRST, most - 1), most, shape, generator=random)

    everything = torch.ones(rows, time, dtype=torch.bool)
    if isinstance(recipe, FillRecipe):
        share = blanks_of(recipe)
        order = torch.rand(rows * time, generator=random).argsort()
        asked = (order < round(share * rows * time)).view(rows, time)
        words = tokens(rows, time)
        return BlankBatch(words, everything, asked, words[asked])
    if isinstance(recipe, TranslateRecipe):
        places = sizes["M"]
        seen = torch.ones(rows, places, dtype=torch.bool)
        return PairBatch(tokens(rows, places), seen, tokens(rows, time), tokens(rows, time))
    if isinstance(recipe, TranscribeRecipe):
        frames = torch.randn(rows, sizes["S"], sizes["F"], generator=random)
        seen = torch.ones(rows, sizes["S"], dtype=torch.bool)
        return UtteranceBatch(frames, seen, tokens(rows, time), tokens(rows, time))
    if isinstance(recipe, CaptionRecipe):
        size = recipe.encode.pictures
        shape = (size.channels, size.rows, size.columns)
        if isinstance(recipe.model.front, MapFrontConfig):
            shape = (size.columns, size.rows, size.channels)
        pictures = torch.randn(rows, *shape, generator=random)
        return CaptionBatch(pictures, tokens(rows, time), tokens(rows, time))
    if recipe.task == "tag":
        spellings = tokens(rows * time, sizes["W"], most=CHARACTERS)
        forms = torch.arange(rows * time).view(rows, time)
        tags = tokens(rows, time, most=TAGS)
        words = tokens(rows, time)
        return TaggedBatch(
            words, forms, spellings, torch.ones_like(spellings, dtype=torch.bool), everything, tags
        )
    return TokenBatch(tokens(rows, time), tokens(rows, time))


def loss_of(subject: Subject) -> Callable[[nn.Module, Any], Tensor]:
    """What training would go down."""
    recipe = subject.recipe
    if isinstance(recipe, TranslateRecipe):
        smoothing = recipe.training.pairs.smoothing
        return lambda model, batch: translate.smoothed_loss(cast(Any, model), batch, smoothing)
    if isinstance(recipe, TranscribeRecipe):
        speech = recipe.training.speech
        return lambda model, batch: transcribe.weighted_loss(cast(Any, model), batch, speech)
    if isinstance(recipe, CaptionRecipe):
        return lambda model, batch: caption_loss(recipe, model, batch)
    if recipe.task == "lm":
        return lambda model, batch: lm.losses(model, batch).sum()
    if recipe.task == "tag":
        return tag.tags_loss
    return fill.loss if recipe.task == "fill" else answer.loss


def caption_loss(recipe: CaptionRecipe, model: nn.Module, batch: CaptionBatch) -> Tensor:
    """As in the stage `captions`."""
    captioner: Any = model
    states, wanted = captioner(batch.pictures, batch.inputs), batch.targets
    smoothing = recipe.training.captions.smoothing
    return writing_loss(captioner.scores, states, wanted, wanted != IGNORE, smoothing)
