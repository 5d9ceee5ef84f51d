"""Cloze: predict the missing word of a sentence from the words on both sides.

    Ada Lovelace was ___ in London .   ->   born

A recurrent model learns from every word of a line at once, since the logits of a word do not depend
on it; a masked language model learns from a random share of the words. Both are evaluated alike:
each held-out word is blanked with all others shown. Tokens are whole words; rare and new ones are
<unknown>, which counts in the perplexity but is never an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harken.batch.blanks import Asked, BlankBatch, choose_blanks, cut_evenly
from harken.batch.bucketing import Order, seeded
from harken.batch.ragged import Ragged, ragged, take_slices
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.encode.vocabulary import END, MASK, PAD, Vocabulary, VocabularySizes
from harken.encode.whole_words import WholeWordsConfig, split_words
from harken.errors import UserError
from harken.formats.text import read_lines
from harken.layers.losses import cross_entropy_
from harken.models.cloze import BiRNNClozeConfig, ClozeConfig, ClozeModel
from harken.tasks.fill_predictor import MAX_LENGTH, FillPredictor, choose_some
from harken.tasks.task import (
    Layout,
    ProbeSizes,
    SplitPaths,
    Splits,
    Task,
    file_calls,
    random_tokens,
    require_one_file,
    token_sizes,
)
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, OptimiserConfig

DEV_BLANKS = 3_000  # measured between two steps of training
TEMPLATE = """
[encode]
least = {encode.least}    # times that a word must be met to be known
size = {encode.size}    # words at most

[model]
kind = "{model.kind}"    # an RNN from each side; or "masked": a Transformer
width = {model.width}
dropout = {model.dropout}

[training]
steps = {training.steps}
batch_tokens = {training.batch_tokens}    # words of one step
evaluate_every = {training.evaluate_every}    # steps; the best on dev is kept; 0: the last
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class FillData(SplitPaths):
    """One sentence or document per line; a share for `dev` keeps equal lines on one side."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FillTraining(StageConfig):
    """One stage."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    steps: int = bounded(900, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = AdamWConfig(rate=3e-3)
    batch_tokens: int = bounded(2048, at_least=1, at_most=MAX_BATCH)
    blanks: float = bounded(0.15, above=0.0, at_most=1.0)  # share of words, for a masked model only


@dataclass(frozen=True, kw_only=True, slots=True)
class FillRecipe:
    """The recipe of a run."""

    task: Literal["fill"] = "fill"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: FillData
    encode: WholeWordsConfig = WholeWordsConfig()
    model: ClozeConfig = BiRNNClozeConfig()
    training: FillTraining = field(default_factory=FillTraining)

    @property
    def blanked_share(self) -> float:
        """The share of words that are targets."""
        return 1.0 if self.model.together else self.training.blanks


class FillTask(Task[FillRecipe, str, Vocabulary, ClozeModel]):
    """Cloze; an example is a line without a blank."""

    recipe_type = FillRecipe
    vocabulary_type = Vocabulary
    layout = Layout[FillRecipe, str](
        calls=file_calls("text.txt", "train.txt", "dev.txt", "test.txt"),
        template=TEMPLATE,
        examples="lines",
        stage="training",
    )

    def read(self, recipe: FillRecipe, paths: Sequence[Path]) -> list[str]:
        return [line.text for line in read_lines(require_one_file(paths, "text"))]

    def read_splits(self, recipe: FillRecipe) -> Splits[str]:
        return Splits(
            recipe.data,
            lambda path: self.read(recipe, [path]),
            seed=recipe.seed,
            key=str,
            check_train=partial(require_words, recipe),
        )

    def input(self, example: str) -> str:
        """The line with its middle word blanked."""
        words = split_words(example)
        if not words:
            return ""
        word = words[len(words) // 2]
        return f"{example[words[0].start : word.start]}___{example[word.stop : words[-1].stop]}"

    def target(self, example: str) -> str:
        words = split_words(example)
        return words[len(words) // 2].text if words else ""

    def fit(self, recipe: FillRecipe, train: Sequence[str]) -> Vocabulary:
        return recipe.encode.fit(train)

    def build(self, recipe: FillRecipe, sizes: VocabularySizes) -> ClozeModel:
        return recipe.model.build(sizes.entries, mask=MASK, end=END, seed=recipe.seed)

    def stages(
        self, recipe: FillRecipe, splits: Splits[str], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[ClozeModel]]:
        dev = ragged(vocabulary.encode(splits["dev"]))
        chosen = choose_some(len(dev.values), DEV_BLANKS, recipe.seed)

        def dev_accuracy(model: ClozeModel) -> float:
            predictor = self.bind(recipe, splits, vocabulary, model)
            filled = predictor.fill(predictor.queries(dev, chosen), best=1)
            return float(np.mean(filled.words[:, 0] == dev.values[chosen]))

        batches = ClozeBatches(ragged(vocabulary.encode(splits["train"])), recipe)
        return [stage("blanks", recipe.training, batches.batch, cloze_loss, dev_accuracy)]

    def bind(
        self, recipe: FillRecipe, splits: Splits[str], vocabulary: Vocabulary, model: ClozeModel
    ) -> FillPredictor:
        return FillPredictor(config=recipe.model, splits=splits, vocabulary=vocabulary, model=model)

    def probe_sizes(self, recipe: FillRecipe, rows: int | None, length: int | None) -> ProbeSizes:
        return token_sizes(recipe.training, rows, length, recipe.training.batch_tokens, None)

    def probe(
        self, recipe: FillRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[ClozeModel]:
        generator = torch.Generator().manual_seed(0)
        shape = letters["B"], letters["T"]
        count = letters["B"] * letters["T"]
        order = torch.rand(count, generator=generator).argsort()
        blanks = (order < round(recipe.blanked_share * count)).view(shape)
        words = random_tokens(generator, vocabulary.entries, *shape)
        batch = BlankBatch(words, torch.ones(shape, dtype=torch.bool), blanks, words[blanks])
        return micro_batch(batch, cloze_loss)


def require_words(recipe: FillRecipe, texts: Sequence[str]) -> None:
    """Raise unless a word of the training lines occurs often enough to be an answer."""
    if not recipe.encode.knows_any(texts):
        raise UserError(
            f"{recipe.data.train}: found no word {recipe.encode.least} times among "
            f"{len(texts)} training lines, wanted words to choose from",
            fix="add lines, or set encode.least = 1",
        )


class ClozeBatches:
    """Training batches. A batch depends only on its index, so a resumed run sees the same data."""

    def __init__(self, lines: Ragged, recipe: FillRecipe) -> None:
        self._recipe = recipe
        self._rows = cut_evenly(lines, recipe.model.length or MAX_LENGTH)
        self._order = Order(self._rows.lengths, recipe.training.batch_tokens, recipe.seed)

    def batch(self, step: int) -> list[BlankBatch]:
        recipe, chosen = self._recipe, self._order.batch(step)
        starts, lengths = self._rows.starts[chosen], self._rows.lengths[chosen]
        blanked = choose_blanks(lengths, recipe.blanked_share, seeded(recipe.seed, step))
        return [Asked(take_slices(self._rows.values, starts, lengths), blanked).batch(PAD)]


def cloze_loss(model: ClozeModel, batch: BlankBatch) -> Tensor:
    """Cross-entropy, summed over the blanks."""
    return cross_entropy_(model(batch.tokens, batch.present, batch.blanks), batch.targets).sum()
