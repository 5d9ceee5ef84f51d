"""The missing word of a sentence, from the words on both of its sides (blank language modelling).

    Ada Lovelace was ___ in London .   ->   born

A recurrent model learns from every word of a line at once, since none of its scores has seen the
word it is of; a masked one from a share of the words, drawn anew each time. Both are measured
alike: each held-out word is blanked with all others shown. Units are whole words; rare and new ones
are <unknown>, which counts in the perplexity but is never an answer.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from harken.batch.blanks import (
    Asked,
    BlankBatch,
    ask_one_by_one,
    ask_together,
    choose_blanks,
    cut_evenly,
    like_lengths,
    words_read,
)
from harken.batch.bucketing import Order, seeded
from harken.batch.ragged import Numbers, Ragged, places, ragged, take_slices
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.encode.vocabulary import END, MASK, PAD, SPECIAL, UNKNOWN, Vocabulary
from harken.encode.whole_words import WholeWordsConfig, split_words
from harken.errors import UserError
from harken.formats.text import hold_out_lines, read_lines
from harken.inspection.record import has_attention
from harken.layers.losses import cross_entropy_
from harken.measure.blanks import BEST, Filled, Tally, fill_by_counts
from harken.measure.interval import Sample
from harken.measure.ngrams import Trigrams
from harken.models.blank import BlankConfig, BlankModel, RecurrentBlankConfig
from harken.tasks.looking import reading
from harken.tasks.task import (
    AttentionExample,
    Evaluation,
    Hypothesis,
    Indices,
    Prediction,
    Trained,
    one_of,
    single,
    truncation_of,
)
from harken.training.loop import Stage, StageConfig
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, OptimiserConfig

BLANK = re.compile("_{2,}")
AROUND = "around the blank"  # the part of a long line that is read
HERE = -1  # a blank among token numbers, for a moment
LONGEST = 512  # words seen at once by a model without a limit of its own
MOST_BLANKS = 20_000  # measured in one evaluation
DEV_BLANKS = 3_000  # measured between two steps of training
SAME_FOR_ALL = 0  # the seed that chooses them: runs of other seeds are asked the same
KEPT = 2_000  # predictions that a report may show
TOGETHER_LINES = 256  # read together in prediction
TOGETHER_WORDS = 8192  # in one batch of measuring, padding included
TOGETHER_SCORES = 1 << 24  # numbers in one product with the vocabulary: 64 MiB


@dataclass(frozen=True, kw_only=True, slots=True)
class FillData:
    """One sentence or document a line; a share for `dev` keeps equal lines on one side."""

    train: Path
    dev: Path | float = 0.1
    test: Path | None = None

    def __post_init__(self) -> None:
        if isinstance(self.dev, float) and not 0 < self.dev < 1:
            raise ValueError(f"dev = {self.dev} is no share; wanted a file or a number in (0, 1)")


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
    """The whole of a run."""

    task: Literal["fill"] = "fill"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: FillData
    encode: WholeWordsConfig = WholeWordsConfig()
    model: BlankConfig = RecurrentBlankConfig()
    training: FillTraining = field(default_factory=FillTraining)


class FillTask:
    """See the top of this file."""

    def read(self, recipe: FillRecipe) -> Mapping[str, list[str]]:
        data = recipe.data
        train = texts_of(data.train)
        if isinstance(data.dev, Path):
            splits = {"train": train, "dev": texts_of(data.dev)}
        else:
            kept, held = hold_out_lines(train, data.dev, recipe.seed)
            splits = {"train": kept, "dev": held}
        if data.test is not None:
            splits["test"] = texts_of(data.test)
        if not recipe.encode.knows_any(splits["train"]):
            raise UserError(
                f"{data.train}: found no word {recipe.encode.least} times among "
                f"{len(splits['train'])} training lines, wanted words to choose from",
                fix="add lines, or set encode.least = 1",
            )
        return splits

    def read_files(self, recipe: FillRecipe, paths: Sequence[Path]) -> list[str]:
        return texts_of(single(paths, "text"))

    def fit(self, recipe: FillRecipe, splits: Mapping[str, list[str]]) -> Vocabulary:
        return recipe.encode.fit(splits["train"])

    def restore(self, path: Path) -> Vocabulary:
        return Vocabulary.load(path)

    def build(self, recipe: FillRecipe, vocabulary: Vocabulary) -> BlankModel:
        return recipe.model.build(len(vocabulary), mask=MASK, end=END, seed=recipe.seed)

    def stages(
        self,
        recipe: FillRecipe,
        splits: Mapping[str, list[str]],
        vocabulary: Vocabulary,
        cache: Path,
    ) -> list[Stage]:
        dev = ragged(vocabulary.encode(splits["dev"]))
        chosen = choose_some(len(dev.values), DEV_BLANKS, recipe.seed)

        def dev_accuracy(model: nn.Module) -> float:
            trained = Trained(recipe=recipe, fitted=vocabulary, model=model)
            filled = fill_blanks(trained, one_at_a_time(dev, chosen, recipe.model), best=1)
            return float(np.mean(filled.words[:, 0] == dev.values[chosen]))

        return [
            Stage(
                name="blanks",
                config=recipe.training,
                batch=Blanking(ragged(vocabulary.encode(splits["train"])), recipe).batch,
                loss=loss,
                evaluate=dev_accuracy,
            )
        ]

    def evaluate(self, trained: Trained, examples: Sequence[str]) -> Evaluation:
        vocabulary, recipe = cast(Vocabulary, trained.fitted), cast(FillRecipe, trained.recipe)
        lines = ragged(vocabulary.encode(examples))
        chosen = choose_some(len(lines.values), MOST_BLANKS, SAME_FOR_ALL)
        filled = fill_blanks(trained, one_at_a_time(lines, chosen, recipe.model), best=BEST)
        training = ragged(vocabulary.encode(self.read(recipe)["train"]))
        trigrams = Trigrams(training, len(vocabulary), end=END, impossible=(PAD, MASK))
        kept = choose_some(len(chosen), KEPT, SAME_FOR_ALL)
        shown = blanked_texts(examples, lines, chosen[kept], recipe.model)
        words = vocabulary.pieces(filled.words[kept, 0].tolist())
        sure = np.exp(filled.logs[kept, 0]).tolist()
        return Evaluation(
            n=len(chosen),
            samples=samples_of(lines, chosen, filled, trigrams),
            notes=notes_of(lines, chosen, vocabulary),
            predictions=[
                Prediction(input=text, output=word, confidence=confidence)
                for (text, _), word, confidence in zip(shown, words, sure, strict=True)
            ],
            expected=[word for _, word in shown],
        )

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        vocabulary, model = cast(Vocabulary, trained.fitted), cast(FillRecipe, trained.recipe).model
        for start in range(0, len(inputs), TOGETHER_LINES):
            texts = inputs[start : start + TOGETHER_LINES]
            lines, blanks = read_blanks(texts, vocabulary)
            rows = cut_evenly(lines, model.length or LONGEST)
            filled = fill_blanks(trained, ask_together(rows, blanks), best=nbest)
            owner, _ = places(lines.lengths)
            lengths = np.stack((words_read(lines, rows, blanks), lines.lengths), axis=1).tolist()
            ends = np.searchsorted(owner[blanks], np.arange(1, len(texts)))
            parts = zip(np.split(filled.words, ends), np.split(filled.logs, ends), strict=True)
            for text, (kept, total), (words, logs) in zip(texts, lengths, parts, strict=True):
                found = likeliest_together([vocabulary.pieces(row) for row in words], logs, nbest)
                yield Prediction(
                    input=text,
                    output=found[0].output,
                    confidence=math.exp(found[0].log_probability),
                    nbest=found if nbest > 1 else (),
                    truncation=truncation_of(kept, total, AROUND, "words"),
                )

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample | None:
        outcomes = zip(evaluation.predictions, evaluation.expected, strict=True)
        right = one_of([one.output == word for one, word in outcomes])
        return self.look(trained, evaluation.predictions[right].input)

    def look(self, trained: Trained, asked: str) -> AttentionExample | None:
        """Of a line too long to be seen at once, the piece that holds the first blank."""
        vocabulary, recipe = cast(Vocabulary, trained.fitted), cast(FillRecipe, trained.recipe)
        line, blanks = read_blanks([asked], vocabulary)
        if not has_attention(trained.model):
            return None
        (said,) = self.predict(trained, [asked])
        pieces = ask_together(cut_evenly(line, recipe.model.length or LONGEST), blanks)
        batch = pieces.take(np.arange(1)).batch(PAD).to(trained.device)
        hidden = batch.tokens[0].masked_fill(batch.blanks[0], MASK).tolist()
        names = vocabulary.pieces([END, *hidden, END])
        return AttentionExample(
            title=f"{asked} → {said.output}",
            run=lambda: trained.model(batch.tokens, batch.present, batch.blanks),
            views=[reading("Words", names)],
            truncation=truncation_of(len(hidden), int(line.lengths[0]), AROUND, "words"),
        )

    def inputs(self, trained: Trained, count: int) -> list[str]:
        """Lines with their middle word blanked."""
        texts = self.read(trained.recipe)["dev"][:count]
        lines = ragged(trained.fitted.encode(texts))
        middle = lines.starts + lines.lengths // 2
        shown = blanked_texts(texts, lines, middle[lines.lengths > 0], trained.recipe.model)
        return [text for text, _ in shown]


def texts_of(path: Path) -> list[str]:
    """The lines of a file that are not blank."""
    return [line.text for line in read_lines(path)]


class Blanking:
    """Batches of training, each a function of its number."""

    def __init__(self, lines: Ragged, recipe: FillRecipe) -> None:
        self._recipe = recipe
        self._rows = cut_evenly(lines, recipe.model.length or LONGEST)
        self._order = Order(self._rows.lengths, recipe.training.batch_tokens, recipe.seed)

    def batch(self, step: int) -> list[BlankBatch]:
        recipe, chosen = self._recipe, self._order.batch(step)
        share = 1.0 if recipe.model.together else recipe.training.blanks
        starts, lengths = self._rows.starts[chosen], self._rows.lengths[chosen]
        blanked = choose_blanks(lengths, share, seeded(recipe.seed, step))
        return [Asked(take_slices(self._rows.values, starts, lengths), blanked).batch(PAD)]


def loss(model: nn.Module, batch: BlankBatch) -> Tensor:
    """Return the summed loss of the blanks."""
    return cross_entropy_(model(batch.tokens, batch.present, batch.blanks), batch.targets).sum()


def choose_some(count: int, most: int, seed: int) -> Numbers:
    """All of `count` places, or `most` of them drawn by lot, in order."""
    if count <= most:
        return np.arange(count)
    return np.sort(seeded(seed).choice(count, most, replace=False))


def one_at_a_time(lines: Ragged, chosen: Numbers, model: BlankConfig) -> Asked:
    """Each chosen word blanked with all others shown; a line too long is met in pieces."""
    rows = cut_evenly(lines, model.length or LONGEST)
    return ask_together(rows, chosen) if model.together else ask_one_by_one(rows, chosen)


def read_blanks(texts: Sequence[str], vocabulary: Vocabulary) -> tuple[Ragged, Numbers]:
    """(lines with <unknown> at every `___`, the flat places of these)."""
    lines: list[Numbers] = []
    for text in texts:
        around = BLANK.split(text)
        if len(around) < 2:
            raise UserError(
                f"{text.strip()[:60]!r}: found no blank, wanted a line with one",
                fix="write ___ where the word is missing",
            )
        first, *others = vocabulary.encode(around)
        lines.append(np.concatenate([first, *(np.append(HERE, one) for one in others)]))
    joined = ragged(lines)
    here = joined.values == HERE
    # A recurrent model reads the other blanks of a line, and <unknown> it has met in training.
    return joined._replace(values=np.where(here, UNKNOWN, joined.values)), np.flatnonzero(here)


@torch.inference_mode()
def fill_blanks(trained: Trained, asked: Asked, best: int) -> Filled:
    """For each blank, row by row; special symbols are no answers."""
    model, symbols = cast(BlankModel, trained.model).eval(), len(trained.fitted)
    owner, _ = places(asked.rows.lengths)
    counts = np.bincount(owner[asked.blanked], minlength=len(asked.rows.lengths))
    total, best = int(counts.sum()), min(best, symbols - len(SPECIAL))
    words = np.zeros((total, best), dtype=np.int64)
    logs, true_logs = np.zeros((total, best)), np.zeros(total)
    for rows in like_lengths(asked.rows.lengths, TOGETHER_WORDS):
        batch = asked.take(rows).batch(PAD).to(trained.device)
        states = model.states(batch.tokens, batch.present, batch.blanks)
        mine = take_slices(np.arange(total), (np.cumsum(counts) - counts)[rows], counts[rows])
        some = max(1, TOGETHER_SCORES // symbols)
        for start in range(0, len(states), some):
            part = slice(start, start + some)
            scores = model.logits(states[part]).float().log_softmax(dim=-1)
            at = mine.values[part]
            true_logs[at] = scores.gather(1, batch.targets[part, None])[:, 0].cpu()
            scores[:, : len(SPECIAL)] = -torch.inf
            top = scores.topk(best, dim=1)
            words[at], logs[at] = top.indices.cpu(), top.values.cpu()
    return Filled(words, logs, true_logs)


def likeliest_together(
    words: Sequence[Sequence[str]], logs: np.ndarray, nbest: int
) -> list[Hypothesis]:
    """The best choices for all blanks of a line, which are independent of each other."""
    found = [Hypothesis(output="", log_probability=0.0)]
    for texts, values in zip(words, logs.tolist(), strict=True):
        longer = [
            Hypothesis(
                output=f"{one.output} {text}".strip(), log_probability=one.log_probability + value
            )
            for one in found
            for text, value in zip(texts, values, strict=True)
        ]
        found = sorted(longer, key=lambda one: -one.log_probability)[:nbest]
    return found


def blanked_texts(
    texts: Sequence[str], lines: Ragged, chosen: Numbers, model: BlankConfig
) -> list[tuple[str, str]]:
    """(what the model saw as text, with ___; the word that stood there) of flat places."""
    line_of, place = places(lines.lengths)
    rows = cut_evenly(lines, model.length or LONGEST)
    row_of, place_in_row = places(rows.lengths)
    split = {line: split_words(texts[line]) for line in np.unique(line_of[chosen])}
    shown = []
    for at in chosen:
        words, text = split[line_of[at]], texts[line_of[at]]
        first = place[at] - place_in_row[at]
        last = first + rows.lengths[row_of[at]] - 1
        word = words[place[at]]
        before, after = text[words[first].start : word.start], text[word.stop : words[last].stop]
        shown.append((f"{before}___{after}", word.text))
    return shown


def samples_of(
    lines: Ragged, chosen: Numbers, filled: Filled, trigrams: Trigrams
) -> dict[str, Sample]:
    """The model's figures, and beside them those of counting."""
    tally = Tally(lines, chosen)
    unigram, trigram = fill_by_counts(trigrams, lines, chosen, len(SPECIAL))
    return {
        "accuracy": tally.accuracy(filled),
        "five_best": tally.five_best(filled),
        "unigram_accuracy": tally.accuracy(unigram),
        "trigram_accuracy": tally.accuracy(trigram),
        "perplexity": tally.perplexity(filled),
        "unigram_perplexity": tally.perplexity(unigram),
        "trigram_perplexity": tally.perplexity(trigram),
        "nats": tally.nats(filled),
    }


def notes_of(lines: Ragged, chosen: Numbers, vocabulary: Vocabulary) -> dict[str, str]:
    """How to read the figures."""
    strange = float(np.mean(lines.values[chosen] == UNKNOWN))
    notes = {
        "accuracy": "blanks whose likeliest word is the one that stood there. Each word or mark of "
        f"the held-out lines is blanked with all others shown; {strange:.1%} of the blanks held a "
        f"word outside the vocabulary of {len(vocabulary) - len(SPECIAL):,} and are never right",
        "five_best": f"the true word is among the {BEST} likeliest",
        "perplexity": "of the true symbol, <unknown> for every word outside the vocabulary",
        "unigram_accuracy": "always the commonest training word",
        "trigram_accuracy": "P(w | a b _ c d) in proportion to p(w | a b) p(c | b w) p(d | w c), "
        "from counts of the training lines mixed by Witten and Bell's weights",
    }
    if len(chosen) < len(lines.values):
        notes["blanks"] = f"{len(chosen):,} of {len(lines.values):,} words, drawn by lot"
    return notes
