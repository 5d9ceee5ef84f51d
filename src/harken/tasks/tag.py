"""One tag per word: part-of-speech tagging and other sequence labeling.

    vectors   optional: CBOW on the training words initializes the word embeddings
    tags      cross-entropy of the tag of each word; rare words are randomly replaced by the unknown
              word (word dropout)

Tags are predicted independently given the encoder states, so the probability of a sentence's tags,
which is the confidence of a prediction, is their product. A sentence with more words than the model
reads at once is tagged in overlapping windows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harken.batch.bucketing import Order, seeded
from harken.batch.padding import IGNORE, TokenBatch
from harken.batch.words import (
    NeighborBatches,
    TaggedBatch,
    WordCorpus,
    forget_rare,
    windows_over,
    word_batch,
    word_corpus,
)
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.encode.vocabulary import PAD, UNKNOWN, VocabularySizes
from harken.encode.words import WordsAndCharacters, WordsAndCharactersConfig
from harken.errors import UserError
from harken.formats.conllu import read_conllu
from harken.formats.examples import Sentence
from harken.layers.losses import cross_entropy_
from harken.measure.tagging import words_right
from harken.models.tagger import CBOWConfig, Tagger, TaggerConfig
from harken.tasks.tag_predictor import MAX_LENGTH, TagPredictor
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

MAX_SENTENCE = 500  # words; a longer only sentence is a file without blank lines
PROBE_LETTERS = 12  # of the longest word of a batch
TEMPLATE = """\
column = "{data.column}"    # or "xpos", the language's own tags

[model]
width = {model.width}
body.kind = "{model.body.kind}"    # or "stride2", "gated", "transformer", or
# "gru", "tanh" with body.direction = "both"
dropout = {model.dropout}

[training.tags]
steps = {training.tags.steps}
batch_tokens = {training.tags.batch_tokens}    # words of one step
evaluate_every = {training.tags.evaluate_every}    # steps; the best on dev is kept; 0: the last
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TagData(SplitPaths):
    """CoNLL-U files; a share for `dev` keeps equal sentences on one side."""

    column: Literal["upos", "xpos"] = "upos"


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorsConfig(StageConfig):
    """Word vectors by CBOW; 0 steps leave the stage out."""

    steps: int = bounded(0, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = AdamWConfig(rate=5e-3, decay=0.0)
    batch_tokens: int = bounded(1024, at_least=1, at_most=MAX_BATCH)
    neighbours: CBOWConfig = CBOWConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class TagsConfig(StageConfig):
    """A word that occurs c times in training is replaced with probability a / (a + c)."""

    steps: int = bounded(1600, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = AdamWConfig(rate=2e-3, decay=0.01)
    batch_tokens: int = bounded(2048, at_least=1, at_most=MAX_BATCH)
    unknown: float = bounded(1.0, at_least=0.0, at_most=1e6)  # a


@dataclass(frozen=True, kw_only=True, slots=True)
class TagTraining:
    """One stage or two."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    tags: TagsConfig = field(default_factory=TagsConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class TagRecipe:
    """The recipe of a run."""

    task: Literal["tag"] = "tag"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: TagData
    encode: WordsAndCharactersConfig = WordsAndCharactersConfig()
    model: TaggerConfig = TaggerConfig()
    training: TagTraining = field(default_factory=TagTraining)


def check_sentences(files: Sequence[Path]) -> list[str]:
    """Reject a file of tagged words without blank lines, which is read as one sentence."""
    for file in files:
        sentences = read_conllu(file)
        words = len(sentences[0].words)
        if len(sentences) == 1 and words > MAX_SENTENCE:
            raise UserError(
                f"{file}: no blank line separates sentences, so that the file is one sentence of "
                f"{words:,} words",
                fix="put a blank line after the last word of each sentence",
            )
    return []


class TagTask(Task[TagRecipe, Sentence, WordsAndCharacters, Tagger]):
    """Sequence labeling."""

    recipe_type = TagRecipe
    vocabulary_type = WordsAndCharacters
    layout = Layout[TagRecipe, Sentence](
        calls=file_calls("train.conllu", "train.conllu", "dev.conllu", "test.conllu"),
        template=TEMPLATE,
        examples="sentences",
        stage="training.tags",
        check=check_sentences,
    )

    def read(self, recipe: TagRecipe, paths: Sequence[Path]) -> list[Sentence]:
        return read_conllu(require_one_file(paths, "tagged sentences"), column=recipe.data.column)

    def read_splits(self, recipe: TagRecipe) -> Splits[Sentence]:
        return Splits(
            recipe.data,
            lambda path: self.read(recipe, [path]),
            seed=recipe.seed,
            key=lambda sentence: "\t".join(sentence.words),
        )

    def input(self, example: Sentence) -> str:
        return " ".join(example.words)

    def target(self, example: Sentence) -> str:
        return " ".join(example.tags)

    def fit(self, recipe: TagRecipe, train: Sequence[Sentence]) -> WordsAndCharacters:
        return recipe.encode.fit(train)

    def build(self, recipe: TagRecipe, sizes: VocabularySizes) -> Tagger:
        vectors = recipe.training.vectors
        return recipe.model.build(
            words=sizes.entries,
            characters=sizes.characters,
            tags=sizes.tags,
            seed=recipe.seed,
            neighbours=vectors.neighbours if vectors.steps > 0 else None,
        )

    def stages(
        self,
        recipe: TagRecipe,
        splits: Splits[Sentence],
        vocabulary: WordsAndCharacters,
        cache: Path,
    ) -> list[Stage[Tagger]]:
        corpus = tagged_corpus(splits["train"], vocabulary)
        vectors, seed = recipe.training.vectors, recipe.seed
        words = [sentence.words for sentence in splits["dev"]]
        expected = [sentence.tags for sentence in splits["dev"]]

        def dev_accuracy(model: Tagger) -> float:
            predictor = TagPredictor(vocabulary=vocabulary, model=model)
            tags = [tagged.tags for tagged in predictor.tag(words)]
            return words_right(expected, tags).value

        batches = TagBatches(corpus, vocabulary, recipe)
        stages = [stage("tags", recipe.training.tags, batches.batch, tags_loss, dev_accuracy)]
        if vectors.steps > 0:
            windows = windows_over(corpus.lengths, MAX_LENGTH)
            neighbors = NeighborBatches(corpus, windows, vectors.batch_tokens, PAD, seed)
            stages.insert(0, stage("vectors", vectors, neighbors.batch, neighbors_loss))
        return stages

    def bind(
        self,
        recipe: TagRecipe,
        splits: Splits[Sentence],
        vocabulary: WordsAndCharacters,
        model: Tagger,
    ) -> TagPredictor:
        return TagPredictor(vocabulary=vocabulary, model=model)

    def probe_sizes(self, recipe: TagRecipe, rows: int | None, length: int | None) -> ProbeSizes:
        stage, letters = recipe.training.tags, f"words of {PROBE_LETTERS} letters, all different"
        sizes = token_sizes(stage, rows, length, stage.batch_tokens, None)
        return sizes._replace(
            letters={**sizes.letters, "W": PROBE_LETTERS},
            assumed=(*sizes.assumed, *([letters] if recipe.model.characters.width else [])),
        )

    def probe(
        self, recipe: TagRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[Tagger]:
        generator = torch.Generator().manual_seed(0)
        rows, words = letters["B"], letters["T"]
        spellings = random_tokens(generator, vocabulary.characters, rows * words, letters["W"])
        forms = torch.arange(rows * words).view(rows, words)
        present = torch.ones(rows, words, dtype=torch.bool)
        tags = random_tokens(generator, vocabulary.tags, rows, words)
        numbers = random_tokens(generator, vocabulary.entries, rows, words)
        spelled = torch.ones_like(spellings, dtype=torch.bool)
        batch = TaggedBatch(numbers, forms, spellings, spelled, present, tags)
        return micro_batch(batch, tags_loss)


def tagged_corpus(sentences: Sequence[Sentence], vocabulary: WordsAndCharacters) -> WordCorpus:
    """Encode the training sentences."""
    number = {tag: index for index, tag in enumerate(vocabulary.tags)}
    tags = [
        np.array([number[tag] for tag in sentence.tags], dtype=np.int64) for sentence in sentences
    ]
    return word_corpus(*vocabulary.encode([sentence.words for sentence in sentences]), tags)


class TagBatches:
    """Training batches. A batch depends only on its index, so a resumed run sees the same data."""

    def __init__(
        self, corpus: WordCorpus, vocabulary: WordsAndCharacters, recipe: TagRecipe
    ) -> None:
        self._corpus, self._config, self._seed = corpus, recipe.training.tags, recipe.seed
        self._counts = vocabulary.row_counts
        self._windows = windows_over(corpus.lengths, recipe.model.length or MAX_LENGTH)
        self._order = Order(self._windows.lengths, self._config.batch_tokens, recipe.seed)

    def batch(self, step: int) -> list[TaggedBatch]:
        batch = word_batch(self._corpus, self._windows, self._order.batch(step), PAD)
        random = seeded(self._seed, step)
        return [forget_rare(batch, self._counts, self._config.unknown, UNKNOWN, random)]


def tags_loss(model: Tagger, batch: TaggedBatch) -> Tensor:
    """Cross-entropy, summed over the words that are counted."""
    scores: Tensor = model(*batch[:-1])
    counted = batch.tags != IGNORE
    return F.cross_entropy(scores[counted].float(), batch.tags[counted], reduction="sum")


def neighbors_loss(model: Tagger, batch: TokenBatch) -> Tensor:
    """Cross-entropy of CBOW, summed over the words that have neighbors."""
    counted = batch.targets != IGNORE
    return cross_entropy_(model(batch.inputs, words_at=counted), batch.targets[counted]).sum()
