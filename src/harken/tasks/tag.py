"""One tag a word: part-of-speech tagging and all that has its form.

    vectors   optional: the row of each word learns to be foretold by its neighbours (CBOW), on the
              training words alone
    tags      cross-entropy of the tag of each word, rare words now and then taken for unknown ones

Tags are chosen word by word; given the states they are independent, so the probability of a
sentence's tags is the product of theirs, and that is the confidence of a prediction. A sentence of
more words than the model sees at once is tagged in windows that overlap.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harken.batch.bucketing import Order, seeded
from harken.batch.padding import IGNORE, TokenBatch
from harken.batch.ragged import places
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
from harken.encode.vocabulary import PAD, UNKNOWN
from harken.encode.words import WordsAndCharacters, WordsAndCharactersConfig
from harken.errors import OptionError
from harken.formats.conllu import read_conllu
from harken.formats.examples import Sentence, TaggedToken
from harken.formats.split import hold_out
from harken.inspection.record import has_attention
from harken.layers.losses import cross_entropy_
from harken.measure.interval import Sample
from harken.measure.tagging import Tags, confusions, pair_counts, tag_scores, words_right
from harken.models.tagger import Tagger, TaggerConfig
from harken.models.word_vectors import NeighboursConfig
from harken.tasks.looking import reading
from harken.tasks.task import (
    AttentionExample,
    Evaluation,
    Indices,
    Prediction,
    Table,
    Trained,
    one_of,
    single,
    truncation_of,
)
from harken.training.loop import Stage, StageConfig
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, OptimiserConfig

LONGEST = 1024  # words seen at once by a body without a limit of its own
TOGETHER = 1024  # sentences encoded at once
TAGGED_WORDS = 8192  # words in a batch of prediction, padding included
CONFUSIONS = 20  # rows of the table


@dataclass(frozen=True, kw_only=True, slots=True)
class TagData:
    """CoNLL-U files; a share for `dev` keeps equal sentences on one side."""

    train: Path
    dev: Path | float = 0.1
    test: Path | None = None
    column: Literal["upos", "xpos"] = "upos"

    def __post_init__(self) -> None:
        if isinstance(self.dev, float) and not 0 < self.dev < 1:
            raise ValueError(f"dev = {self.dev} is no share; wanted a file or a number in (0, 1)")


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorsConfig(StageConfig):
    """Word vectors by CBOW; 0 steps leave the stage out."""

    steps: int = bounded(0, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = AdamWConfig(rate=5e-3, decay=0.0)
    batch_tokens: int = bounded(1024, at_least=1, at_most=MAX_BATCH)
    neighbours: NeighboursConfig = NeighboursConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class TagsConfig(StageConfig):
    """A word met c times in training is taken for unknown with probability a / (a + c)."""

    steps: int = bounded(1600, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = AdamWConfig(rate=2e-3, decay=0.01)
    batch_tokens: int = bounded(2048, at_least=1, at_most=MAX_BATCH)
    unknown: float = bounded(1.0, at_least=0.0, at_most=1e6)  # a


@dataclass(frozen=True, kw_only=True, slots=True)
class TagTraining:
    """One stage, or two."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    tags: TagsConfig = field(default_factory=TagsConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class TagRecipe:
    """The whole of a run."""

    task: Literal["tag"] = "tag"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: TagData
    encode: WordsAndCharactersConfig = WordsAndCharactersConfig()
    model: TaggerConfig = TaggerConfig()
    training: TagTraining = field(default_factory=TagTraining)


class Tagged(NamedTuple):
    """The tag of each word of a sentence and its log-probability."""

    tags: Sequence[str]
    log_probabilities: Sequence[float]


class TagTask:
    """See the top of this file."""

    def read(self, recipe: TagRecipe) -> Mapping[str, list[Sentence]]:
        data = recipe.data
        train = read_conllu(data.train, column=data.column)
        if isinstance(data.dev, Path):
            splits = {"train": train, "dev": read_conllu(data.dev, column=data.column)}
        else:
            kept, held = hold_out(
                train, data.dev, recipe.seed, key=lambda one: "\t".join(one.words)
            )
            splits = {"train": kept, "dev": held}
        if data.test is not None:
            splits["test"] = read_conllu(data.test, column=data.column)
        return splits

    def read_files(self, recipe: TagRecipe, paths: Sequence[Path]) -> list[Sentence]:
        return read_conllu(single(paths, "tagged sentences"), column=recipe.data.column)

    def fit(
        self, recipe: TagRecipe, splits: Mapping[str, Sequence[Sentence]]
    ) -> WordsAndCharacters:
        return recipe.encode.fit(splits["train"])

    def restore(self, path: Path) -> WordsAndCharacters:
        return WordsAndCharacters.load(path)

    def build(self, recipe: TagRecipe, fitted: WordsAndCharacters) -> Tagger:
        vectors = recipe.training.vectors
        return recipe.model.build(
            words=len(fitted),
            characters=fitted.character_count,
            tags=len(fitted.tags),
            seed=recipe.seed,
            neighbours=vectors.neighbours if vectors.steps > 0 else None,
        )

    def stages(
        self,
        recipe: TagRecipe,
        splits: Mapping[str, Sequence[Sentence]],
        fitted: WordsAndCharacters,
        cache: Path,
    ) -> list[Stage]:
        corpus = corpus_of(splits["train"], fitted)
        vectors, tags = recipe.training.vectors, recipe.training.tags
        words = [one.words for one in splits["dev"]]
        expected = [one.tags for one in splits["dev"]]

        def dev_accuracy(model: nn.Module) -> float:
            trained = Trained(recipe=recipe, fitted=fitted, model=model)
            said = [one.tags for one in tag_sentences(trained, words)]
            return words_right(expected, said).value

        stages = [
            Stage(
                name="tags",
                config=tags,
                batch=Tagging(corpus, fitted, recipe).batch,
                loss=tags_loss,
                evaluate=dev_accuracy,
            )
        ]
        if vectors.steps > 0:
            windows = windows_over(corpus.lengths, LONGEST)
            batches = NeighborBatches(corpus, windows, vectors.batch_tokens, PAD, recipe.seed)
            first = Stage(name="vectors", config=vectors, batch=batches.batch, loss=neighbours_loss)
            stages.insert(0, first)
        return stages

    def evaluate(self, trained: Trained, examples: Sequence[Sentence]) -> Evaluation:
        fitted = cast(WordsAndCharacters, trained.fitted)
        tagged = list(tag_sentences(trained, [one.words for one in examples]))
        said = [one.tags for one in tagged]
        return Evaluation(
            n=len(examples),
            samples=samples_of(examples, said, fitted),
            notes=notes_of(examples, fitted),
            predictions=[
                prediction_of(" ".join(sentence.words), sentence.words, one)
                for sentence, one in zip(examples, tagged, strict=True)
            ],
            expected=[" ".join(sentence.tags) for sentence in examples],
            tables=tables_of(examples, said),
        )

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        if nbest > 1:
            raise OptionError(
                f"nbest: task 'tag' gives each word its one best tag (expected 1, got {nbest})",
                fix="leave nbest out",
            )
        sentences = [line.split() for line in inputs]
        yield from map(prediction_of, inputs, sentences, tag_sentences(trained, sentences))

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample | None:
        if not has_attention(trained.model):
            return None
        outcomes = zip(evaluation.predictions, evaluation.expected, strict=True)
        right = one_of([one.output == tags for one, tags in outcomes])
        return self.look(trained, evaluation.predictions[right].input)

    def look(self, trained: Trained, asked: str) -> AttentionExample | None:
        """As many words from the first on as the model sees at once."""
        model = cast(Tagger, trained.model)
        every = asked.split()
        words = every[: model.length]
        if not words or not has_attention(model):
            return None
        (said,), batch = tag_sentences(trained, [words]), whole_batch(words, trained)
        return AttentionExample(
            title=f"{' '.join(words)} → {' '.join(said.tags)}",
            run=lambda: model(*batch[:-1]),
            views=[reading("Words", words)],
            truncation=truncation_of(len(words), len(every), "first", "words"),
        )

    def inputs(self, trained: Trained, count: int) -> list[str]:
        return [" ".join(one.words) for one in self.read(trained.recipe)["dev"][:count]]


def corpus_of(sentences: Sequence[Sentence], fitted: WordsAndCharacters) -> WordCorpus:
    """Training sentences as numbers."""
    number = {tag: place for place, tag in enumerate(fitted.tags)}
    tags = [np.array([number[tag] for tag in one.tags], dtype=np.int64) for one in sentences]
    return word_corpus(*fitted.encode([one.words for one in sentences]), tags)


class Tagging:
    """Batches of the stage `tags`, each a function of its number."""

    def __init__(self, corpus: WordCorpus, fitted: WordsAndCharacters, recipe: TagRecipe) -> None:
        self._corpus, self._config, self._seed = corpus, recipe.training.tags, recipe.seed
        self._counts = fitted.row_counts
        self._windows = windows_over(corpus.lengths, recipe.model.length or LONGEST)
        self._order = Order(self._windows.lengths, self._config.batch_tokens, recipe.seed)

    def batch(self, step: int) -> list[TaggedBatch]:
        batch = word_batch(self._corpus, self._windows, self._order.batch(step), PAD)
        random = seeded(self._seed, step)
        return [forget_rare(batch, self._counts, self._config.unknown, UNKNOWN, random)]


def tags_loss(model: nn.Module, batch: TaggedBatch) -> Tensor:
    """Summed over the words that count."""
    scores: Tensor = model(*batch[:-1])
    counted = batch.tags != IGNORE
    return F.cross_entropy(scores[counted].float(), batch.tags[counted], reduction="sum")


def neighbours_loss(model: nn.Module, batch: TokenBatch) -> Tensor:
    """Return the summed loss of the words that have neighbors."""
    counted = batch.targets != IGNORE
    return cross_entropy_(model(batch.inputs, words_at=counted), batch.targets[counted]).sum()


def tag_sentences(trained: Trained, sentences: Sequence[Sequence[str]]) -> Iterator[Tagged]:
    """One for each sentence, in order."""
    cast(Tagger, trained.model).eval()
    for start in range(0, len(sentences), TOGETHER):
        yield from _tag_together(trained, sentences[start : start + TOGETHER])


@torch.inference_mode()
def _tag_together(trained: Trained, sentences: Sequence[Sequence[str]]) -> list[Tagged]:
    """Windows of like length share a batch; each leaves its kept words where they belong."""
    model, fitted = cast(Tagger, trained.model), cast(WordsAndCharacters, trained.fitted)
    corpus = word_corpus(*fitted.encode(sentences))
    windows = windows_over(corpus.lengths, model.length or LONGEST)
    best = np.zeros(len(corpus.rows), dtype=np.int64)
    sure = np.zeros(len(corpus.rows))
    order = Order(windows.lengths, TAGGED_WORDS, seed=0)
    for step in count():
        if order.epoch(step) >= 1:
            break
        chosen = order.batch(step)
        batch = word_batch(corpus, windows, chosen, PAD).to(trained.device)
        if batch.present.any():
            logs, tags = model(*batch[:-1]).float().log_softmax(dim=-1).max(dim=-1)
            owner, place = places(windows.kept[chosen])
            at = (owner, windows.skipped[chosen][owner] + place)
            flat = windows.starts[chosen][owner] + at[1]
            best[flat], sure[flat] = tags.cpu().numpy()[at], logs.cpu().numpy()[at]
    ends = np.cumsum(corpus.lengths)[:-1]
    return [
        Tagged([fitted.tags[tag] for tag in tags], logs.tolist())
        for tags, logs in zip(np.split(best, ends), np.split(sure, ends), strict=True)
    ]


def whole_batch(words: Sequence[str], trained: Trained) -> TaggedBatch:
    """One sentence that the model sees at once."""
    corpus = word_corpus(*cast(WordsAndCharacters, trained.fitted).encode([words]))
    windows = windows_over(corpus.lengths, max(len(words), 1))
    return word_batch(corpus, windows, np.arange(1), PAD).to(trained.device)


def prediction_of(asked: str, words: Sequence[str], tagged: Tagged) -> Prediction:
    """Tags joined by spaces, and each word with its own tag and probability."""
    return Prediction(
        input=asked,
        output=" ".join(tagged.tags),
        confidence=math.exp(math.fsum(tagged.log_probabilities)),
        tokens=list(map(TaggedToken, words, tagged.tags, map(math.exp, tagged.log_probabilities))),
    )


def samples_of(
    examples: Sequence[Sentence], said: Tags, fitted: WordsAndCharacters
) -> dict[str, Sample]:
    """All words, known and unknown ones apart (where there are such), and the simplest guess."""
    expected = [one.tags for one in examples]
    known = [[word in fitted.known for word in one.words] for one in examples]
    unknown = [[not here for here in one] for one in known]
    guess = [[fitted.likely_tag(word) for word in one.words] for one in examples]
    samples = {"accuracy": words_right(expected, said)}
    for name, among in (("known_words", known), ("unknown_words", unknown)):
        if any(map(any, among)):
            samples[name] = words_right(expected, said, among)
    samples["commonest_tag"] = words_right(expected, guess)
    return samples


def notes_of(examples: Sequence[Sentence], fitted: WordsAndCharacters) -> dict[str, str]:
    """How to read the figures."""
    notes = {
        "accuracy": "words with the expected tag; the interval is over sentences",
        "known_words": "words that the training data hold in this very form",
        "unknown_words": "words that they do not",
        "commonest_tag": "each word's commonest training tag, for unknown ones "
        f"{fitted.commonest_tag}",
    }
    strange = Counter(tag for one in examples for tag in one.tags if tag not in fitted.tag_counts)
    if strange:
        notes["unseen_tags"] = (
            f"{strange.total()} words have tags never seen in training: "
            f"{', '.join(sorted(strange))}; they count as wrong"
        )
    return notes


def tables_of(examples: Sequence[Sentence], given: Tags) -> list[Table]:
    """What goes wrong, and how well each tag is found."""
    tags = chain.from_iterable(one.tags for one in examples)
    pairs = pair_counts(tags, chain.from_iterable(given))
    return [
        Table(
            title="What is taken for what",
            header=("expected", "said", "words", "of that tag"),
            rows=[(*one[:3], f"{one.share:.1%}") for one in confusions(pairs, CONFUSIONS)],
        ),
        Table(
            title="Each tag",
            header=("tag", "precision", "recall", "F1", "words"),
            rows=[
                (tag, *(f"{share:.1%}" for share in shares), words)
                for tag, *shares, words in tag_scores(pairs)
            ],
        ),
    ]
