"""Cloze: predict the missing word of a sentence from the words on both sides.

    Ada Lovelace was ___ in London .   ->   born

A recurrent model is trained on all words of a line at once, since the logits of a word depend only
on the other words; a masked language model is trained on a random share of the words. In
evaluation, one word is blanked at a time. Tokens are whole words. Rare and new words are <unknown>,
which counts in the perplexity but is never predicted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.batch import cloze
from harken.batch.bucketing import BucketSampler, rng
from harken.batch.cloze import ClozeBatch, ClozeQueries, mask_together
from harken.batch.ragged import IntArray, Ragged, ragged, ragged_indices, ragged_slices
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.encode.subwords import WholeWordsConfig, split_words
from harken.encode.vocabulary import END, MASK, PAD, SPECIAL, UNKNOWN, Vocabulary, VocabularySizes
from harken.errors import UserError
from harken.formats.corpus import TextCorpus
from harken.inspection.record import has_multihead
from harken.layers.losses import cross_entropy_
from harken.measure.cloze import BEST, ClozeMetrics, ClozePredictions, Trigrams, ngram_predictions
from harken.measure.interval import Sample
from harken.models.cloze import BiRNNClozeConfig, ClozeConfig, ClozeModel
from harken.tasks.attention_view import AttentionExample, scored_output, self_attention_view
from harken.tasks.columns import TextColumns
from harken.tasks.dummy_batches import DummySizes, random_tokens, token_sizes
from harken.tasks.prediction import Evaluation, Prediction, ranked_prediction, truncation_of
from harken.tasks.task import Keys, Layout, Predictor, SplitPaths, Splits, Task, file_calls
from harken.training.distributed import map_batches
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.optimizer import AdamWConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

DEV_BLANKS = 3_000  # blanks per evaluation during training
BLANK = re.compile("_{2,}")
AROUND = "around the blank"  # the part of a long line that the model reads
PLACEHOLDER = -1  # marks a blank until it becomes <unknown>
MAX_LENGTH = 512  # words per row, for a model without a limit
MAX_BLANKS = 20_000  # in an evaluation
EVALUATION_SEED = 0  # of the choice of blanks; the same for all runs
MAX_PREDICTIONS = 2_000  # predictions in the report
BATCH_LINES, BATCH_WORDS = 256, 8192  # in a batch of predictions; with padding
BATCH_LOGITS = 1 << 24  # logits computed at once: 64 MiB
TEMPLATE = """
[encode]
min_count = {encode.min_count}    # rarer words are <unknown>
vocab_size = {encode.vocab_size}    # words at most

[model]
kind = "{model.kind}"    # two RNNs, one per direction; or "masked": a Transformer
width = {model.width}
dropout = {model.dropout}

[training]
steps = {training.steps}
batch_tokens = {training.batch_tokens}    # words per batch
evaluate_every = {training.evaluate_every}    # steps; keeps the best weights; 0: never
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class FillData(SplitPaths):
    """Files of one sentence or document per line, or tables."""

    columns: TextColumns = TextColumns()  # columns of tables


@dataclass(frozen=True, kw_only=True, slots=True)
class FillTraining(StageConfig):
    """The only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
    steps: int = bounded(900, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    optimizer: OptimizerConfig = AdamWConfig(lr=3e-3)  # optimizer, learning rate
    batch_tokens: int = bounded(2048, at_least=1, at_most=MAX_BATCH)  # words per batch
    # share of words that are masked, for model.kind = "masked"
    mask_ratio: float = bounded(0.15, above=0.0, at_most=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class FillRecipe:
    """Recipe of the task `fill`."""

    task: Literal["fill"] = "fill"  # cloze
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: FillData  # files of one sentence or document per line
    encode: WholeWordsConfig = WholeWordsConfig()  # vocabulary
    model: ClozeConfig = BiRNNClozeConfig()  # architecture
    training: FillTraining = field(default_factory=FillTraining)  # training stage

    @property
    def blanked_share(self) -> float:
        """The share of words that are targets in training."""
        return 1.0 if self.model.predicts_all_words else self.training.mask_ratio

    def cut(self, lines: Ragged) -> Ragged:
        """Cut lines that are too long for the model into rows."""
        return cloze.cut_evenly(lines, self.model.max_length or MAX_LENGTH)


class FillPredictor(Predictor[FillRecipe, str, Vocabulary, ClozeModel]):
    """A trained cloze model."""

    batch_size = BATCH_LINES

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        lines, blanks = encode_blanks(inputs, self.vocabulary)
        rows = self.recipe.cut(lines)
        filled = self.fill(mask_together(rows, blanks), best=nbest)
        line_of, _ = ragged_indices(lines.lengths)
        ends = np.searchsorted(line_of[blanks], np.arange(1, len(inputs)))
        lengths = np.stack((cloze.words_read(lines, rows, blanks), lines.lengths), axis=1).tolist()
        by_line = np.split(filled.words, ends), np.split(filled.log_probs, ends)
        for text, (kept, total), words, log_probs in zip(inputs, lengths, *by_line, strict=True):
            token_texts = [self.vocabulary.token_texts(row) for row in words]
            outputs, totals = best_combinations(token_texts, log_probs, nbest)
            truncation = truncation_of(kept, total, AROUND, "words")
            yield ranked_prediction(text, outputs, totals, nbest, truncation)

    def evaluate(self, examples: Sequence[str], condition: str | None = None) -> Evaluation:
        vocabulary = self.vocabulary
        lines = ragged(vocabulary.encode(examples))
        chosen = sample_indices(len(lines.values), MAX_BLANKS, EVALUATION_SEED)
        filled = self.fill(self.queries(lines, chosen), best=BEST)
        train_lines = ragged(vocabulary.encode(self.splits["train"]))
        trigrams = Trigrams(train_lines, len(vocabulary), end=END, impossible=(PAD, MASK))
        shown = sample_indices(len(chosen), MAX_PREDICTIONS, EVALUATION_SEED)
        blanked = self._blanked_texts(examples, lines, chosen[shown])
        words = vocabulary.token_texts(filled.words[shown, 0].tolist())
        confidences = np.exp(filled.log_probs[shown, 0]).tolist()
        return Evaluation(
            n=len(chosen),
            samples=cloze_samples(lines, chosen, filled, trigrams),
            notes=cloze_notes(lines, chosen, vocabulary),
            predictions=[
                Prediction(input=text, output=word, confidence=confidence)
                for (text, _), word, confidence in zip(blanked, words, confidences, strict=True)
            ],
            expected=[word for _, word in blanked],
        )

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention over the line; of a long line, over the first row with a blank."""
        line, blanks = encode_blanks([text], self.vocabulary)
        if not has_multihead(self.model):
            return None
        first = mask_together(self.recipe.cut(line), blanks).take(np.arange(1))
        batch, words = first.batch(PAD).to(self.device), self.fill(first, best=1).words[:, 0]
        scored = scored_output(words.tolist(), output, self.vocabulary)
        masked = batch.tokens[0].masked_fill(batch.blanks[0], MASK).tolist()
        return AttentionExample(
            title=f"{text} → {scored.text}",
            run=lambda: self.model(*batch[:3]).float().log_softmax(dim=-1),
            output=scored,
            views=[self_attention_view("words", self.vocabulary.token_texts([END, *masked, END]))],
            truncation=truncation_of(len(masked), int(line.lengths[0]), AROUND, "words"),
        )

    def queries(self, lines: Ragged, chosen: IntArray) -> ClozeQueries:
        """Blank one word per row, or all at once if one pass predicts every word."""
        mask = mask_together if self.recipe.model.predicts_all_words else cloze.mask_one_by_one
        return mask(self.recipe.cut(lines), chosen)

    @torch.inference_mode()
    def fill(self, queries: ClozeQueries, best: int) -> ClozePredictions:
        """Return the `best` most probable words for each blank, without special tokens."""
        model, entries = self.model.eval(), len(self.vocabulary)
        row_of, _ = ragged_indices(queries.rows.lengths)
        counts = np.bincount(row_of[queries.blanked], minlength=len(queries.rows.lengths))
        total, best = int(counts.sum()), min(best, entries - len(SPECIAL))
        filled = ClozePredictions(
            words=np.zeros((total, best), dtype=np.int64),
            log_probs=np.zeros((total, best)),
            true_log_probs=np.zeros(total),
        )
        size = max(1, BATCH_LOGITS // entries)
        starts = np.cumsum(counts) - counts

        def fill_rows(rows: IntArray) -> list[tuple[IntArray, ClozePredictions]]:
            batch = queries.take(rows).batch(PAD).to(self.device)
            states = model.states(batch.tokens, batch.present, batch.blanks)
            blanks = ragged_slices(np.arange(total), starts[rows], counts[rows])
            results = []
            for start in range(0, len(states), size):
                part = slice(start, start + size)
                log_probs = model.logits(states[part]).float().log_softmax(dim=-1)
                true_log_probs = log_probs.gather(1, batch.targets[part, None])[:, 0]
                log_probs[:, : len(SPECIAL)] = -torch.inf
                top = log_probs.topk(best, dim=1)
                arrays = (t.cpu().numpy() for t in (top.indices, top.values, true_log_probs))
                results.append((blanks.values[part], ClozePredictions(*arrays)))
            return results

        batches = cloze.length_batches(queries.rows.lengths, BATCH_WORDS)
        for blanks, predictions in chain.from_iterable(map_batches(fill_rows, batches)):
            for array, values in zip(filled, predictions, strict=True):
                array[blanks] = values
        return filled

    def _blanked_texts(
        self, texts: Sequence[str], lines: Ragged, chosen: IntArray
    ) -> list[tuple[str, str]]:
        """Return, for each chosen flat index, the row with ___ for this word, and the word."""
        rows = self.recipe.cut(lines)
        line_of, index_in_line = ragged_indices(lines.lengths)
        row_of, index_in_row = ragged_indices(rows.lengths)
        starts, lengths = index_in_line - index_in_row, rows.lengths[row_of]
        spans = [slice(starts[word], starts[word] + lengths[word]) for word in chosen]
        chosen_texts = [texts[line_of[word]] for word in chosen]
        return list(map(blank_word, chosen_texts, index_in_row[chosen], spans))


def blank_word(text: str, index: int, span: slice = slice(None)) -> tuple[str, str]:
    """Return the words of a span with ___ in place of the word at `index`, and this word."""
    words = split_words(text)[span]
    word = words[index]
    return f"{text[words[0].start : word.start]}___{text[word.stop : words[-1].stop]}", word.text


def sample_indices(count: int, limit: int, seed: int) -> IntArray:
    """Return the indices below `count`; if more than `limit`, a sorted random sample of them."""
    if count <= limit:
        return np.arange(count)
    return np.sort(rng(seed).choice(count, limit, replace=False))


def encode_blanks(texts: Sequence[str], vocabulary: Vocabulary) -> tuple[Ragged, IntArray]:
    """Encode lines with <unknown> for each `___`, and return the flat indices of the blanks."""
    lines: list[IntArray] = []
    for text in texts:
        parts = BLANK.split(text)
        if len(parts) < 2:
            raise UserError(
                f"{text.strip()[:60]!r}: the line has no blank (expected ___)",
                fix="write ___ where the word is missing",
            )
        first, *others = vocabulary.encode(parts)
        lines.append(np.concatenate([first, *(np.append(PLACEHOLDER, part) for part in others)]))
    joined = ragged(lines)
    is_blank = joined.values == PLACEHOLDER
    # A recurrent model reads other blanks as <unknown>, since it was trained without <mask>.
    values = np.where(is_blank, UNKNOWN, joined.values)
    return joined._replace(values=values), np.flatnonzero(is_blank)


def best_combinations(
    words: Sequence[Sequence[str]], log_probs: Float[np.ndarray, "blanks best"], nbest: int
) -> tuple[list[str], list[float]]:
    """Return the best combinations of words for the independent blanks of a line, as texts.

    The second list has the log-probability of each combination.
    """
    best = [("", 0.0)]
    for texts, values in zip(words, log_probs.tolist(), strict=True):
        extended = [
            (f"{output} {text}".strip(), log + value)
            for output, log in best
            for text, value in zip(texts, values, strict=True)
        ]
        best = sorted(extended, key=lambda combination: -combination[1])[:nbest]
    return [output for output, _ in best], [log for _, log in best]


def cloze_samples(
    lines: Ragged, chosen: IntArray, filled: ClozePredictions, trigrams: Trigrams
) -> dict[str, Sample]:
    """Return the metrics of the model and of the n-gram baselines."""
    metrics = ClozeMetrics(lines, chosen)
    unigram, trigram = ngram_predictions(trigrams, lines, chosen, len(SPECIAL))
    models = {"": filled, "unigram_": unigram, "trigram_": trigram}
    return {
        "accuracy": metrics.accuracy(filled),
        "top5_accuracy": metrics.accuracy(filled, BEST),
        **{f"{name}accuracy": metrics.accuracy(words) for name, words in models.items()},
        **{
            f"{name}perplexity": metrics.loss(words, "perplexity") for name, words in models.items()
        },
        "nats": metrics.loss(filled, "nats"),
    }


def cloze_notes(lines: Ragged, chosen: IntArray, vocabulary: Vocabulary) -> dict[str, str]:
    """Return explanations of the metrics."""
    unknown = float(np.mean(lines.values[chosen] == UNKNOWN))
    notes = {
        "accuracy": "blanks whose most probable word is the true one. One word or punctuation mark "
        f"of the held-out lines is blanked at a time; {unknown:.1%} of the words are not in the "
        f"vocabulary of {len(vocabulary) - len(SPECIAL):,} and count as wrong",
        "top5_accuracy": f"the true word is among the {BEST} most probable",
        "perplexity": "of the true word, or of <unknown> if it is not in the vocabulary",
        "unigram_accuracy": "baseline: the most frequent training word",
        "trigram_accuracy": "baseline: P(w | a b _ c d) ∝ p(w | a b) p(c | b w) p(d | w c), from "
        "counts of the training lines with Witten-Bell smoothing",
    }
    if len(chosen) < len(lines.values):
        notes["blanks"] = f"{len(chosen):,} of {len(lines.values):,} words, chosen at random"
    return notes


class FillTask(Task[FillRecipe, str, Vocabulary, ClozeModel]):
    """Cloze; an example is a line without a blank."""

    recipe_type = FillRecipe
    vocabulary_type = Vocabulary
    predictor_type = FillPredictor
    layout = Layout[FillRecipe, str](
        calls=file_calls("text.txt", "train.txt", "dev.txt", "test.txt"),
        template=TEMPLATE,
        examples="lines",
        stage="training",
    )

    def read_file(self, recipe: FillRecipe, path: Path) -> list[str]:
        column = recipe.data.columns.text
        corpus = TextCorpus(files=(path,), documents="lines", column=column)
        return [block.text for block in corpus.blocks()]

    def read_splits(self, recipe: FillRecipe) -> Splits[str]:
        def require_words(texts: Sequence[str]) -> None:
            if not recipe.encode.has_frequent_word(texts):
                raise UserError(
                    f"{recipe.data.train}: no word occurs {recipe.encode.min_count} times in "
                    f"{len(texts)} training lines",
                    fix="add lines, or set encode.min_count = 1",
                )

        read = partial(self.read_file, recipe)
        return Splits(recipe.data, read, seed=recipe.seed, check_train=require_words)

    def input(self, example: str) -> str:
        """Return the line with its middle word blanked."""
        count = len(split_words(example))
        return blank_word(example, count // 2)[0] if count else ""

    def target(self, example: str) -> str:
        count = len(split_words(example))
        return blank_word(example, count // 2)[1] if count else ""

    def fit(self, recipe: FillRecipe, train: Sequence[str]) -> Vocabulary:
        return recipe.encode.fit(train)

    def build(self, recipe: FillRecipe, sizes: VocabularySizes) -> ClozeModel:
        return recipe.model.build(sizes.entries, mask=MASK, end=END, seed=recipe.seed)

    def stages(
        self, recipe: FillRecipe, splits: Splits[str], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[ClozeModel]]:
        training = recipe.training
        dev = ragged(vocabulary.encode(splits["dev"]))
        chosen = sample_indices(len(dev.values), DEV_BLANKS, recipe.seed)
        rows = recipe.cut(ragged(vocabulary.encode(splits["train"])))
        sampler = BucketSampler(rows.lengths, training.batch_tokens, recipe.seed)

        def batch(step: int) -> list[ClozeBatch]:
            texts = rows.take(sampler.batch(step))
            blanked = cloze.choose_blanks(
                texts.lengths, recipe.blanked_share, rng(recipe.seed, step)
            )
            return [ClozeQueries(texts, blanked).batch(PAD)]

        def dev_accuracy(model: ClozeModel) -> float:
            predictor = FillPredictor(recipe, splits, vocabulary, model)
            filled = predictor.fill(predictor.queries(dev, chosen), best=1)
            return float(np.mean(filled.words[:, 0] == dev.values[chosen]))

        return [stage("blanks", training, batch, cloze_loss, dev_accuracy)]

    def dummy_sizes(self, recipe: FillRecipe, rows: int | None, length: int | None) -> DummySizes:
        return token_sizes(recipe.training, rows, length, recipe.training.batch_tokens)

    def dummy_batch(
        self, recipe: FillRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[ClozeModel]:
        generator, shape = torch.Generator().manual_seed(0), (sizes["B"], sizes["T"])
        order = torch.rand(shape[0] * shape[1], generator=generator).argsort()
        blanks = (order < round(recipe.blanked_share * len(order))).view(shape)
        words = random_tokens(generator, vocabulary.entries, *shape)
        batch = ClozeBatch(words, torch.ones(shape, dtype=torch.bool), blanks, words[blanks])
        return micro_batch(batch, cloze_loss)


def cloze_loss(model: ClozeModel, batch: ClozeBatch) -> Tensor:
    """Return the summed cross-entropy of the blanks."""
    return cross_entropy_(model(batch.tokens, batch.present, batch.blanks), batch.targets).sum()
