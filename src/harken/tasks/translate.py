"""Translation with an encoder and a decoder with cross-attention.

    source tokens         -> encoder states
    <end> target tokens   -> target tokens <end>       (decoder inputs, targets)

Both languages share one vocabulary. A source that is longer than the model's limit is translated in
chunks, cut between words; training leaves such pairs out.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from harken.batch.bucketing import BucketSampler
from harken.batch.padding import Seq2SeqBatch, pad, shift_targets
from harken.batch.ragged import IntArray, Ragged, ragged
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.decode.stepper import Seq2SeqStepper, TokenHypothesis, concatenate
from harken.encode.subwords import BytePairConfig, TokenizerConfig
from harken.encode.vocabulary import END, PAD, Vocabulary, VocabularySizes
from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.tsv import read_pairs_tsv, read_parallel
from harken.inspection.refs import is_encoder_attention
from harken.measure.bleu import bleu, bleu_counts, translation_samples
from harken.models.seq2seq import MAX_SOURCE, EncoderDecoder, EncoderDecoderConfig
from harken.tasks.attention_view import AttentionExample, output_title, self_view
from harken.tasks.prediction import Evaluation, Prediction, beam_prediction, truncation_of
from harken.tasks.probe import ProbeSizes, random_seq2seq_batch, random_tokens, token_sizes
from harken.tasks.seq2seq import (
    Beams,
    cross_entropy_loss,
    decoder_inputs,
    max_tokens,
    output_views,
    search_tokens,
)
from harken.tasks.task import Keys, Layout, Predictor, Splits, Task, require_share, warn_unfit
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.optimizer import AdamWConfig, MuonConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig

KEYS = [f"{split}.{side}" for split in ("train", "dev", "test") for side in ("source", "target")]
DEV_SENTENCES = 500  # translated greedily at each evaluation during training
BLEU_ORDER = 4
# A character of a script without spaces, or a word.
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+")
BATCH_SIZE = 64  # sentences in a search
MAX_EXAMPLE_WORDS = 20  # of a sentence whose attention the report shows
TEMPLATE = """\
target_language = "{data.target_language}"    # for the tokenization of BLEU

[encode]
kind = "{encode.kind}"    # or "unigram", "words", "characters"
vocab_size = {encode.vocab_size}    # shared by both languages; leave out with "characters"

[model]
encoder.kind = "{model.encoder.kind}"    # or "stride2", "gated", or
# "lstm", "gru", "tanh" with encoder.direction = "both"
decoder.kind = "{model.decoder.kind}"    # or "rnn", also with attention
decoder.width = {model.decoder.width}

[training.pairs]
steps = {training.pairs.steps}
batch_tokens = {training.pairs.batch_tokens}
evaluate_every = {training.pairs.evaluate_every}    # steps; keeps the best weights; 0: never

[search]
beam = {search.beam}
length_penalty = {search.length_penalty}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelFiles:
    """Two files whose lines correspond."""

    source: Path  # sentences, one per line
    target: Path  # their translations


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateData:
    """Pairs of files, or files of `source<TAB>target`."""

    train: ParallelFiles | Path  # training files
    dev: ParallelFiles | Path | float = 0.02  # validation files, or a share to hold out
    test: ParallelFiles | Path | None = None  # files that are not used in training
    target_language: str = "en"  # language of the Moses tokenizer, which BLEU uses

    def __post_init__(self) -> None:
        require_share(self.dev, "files")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateStage(StageConfig):
    """Training on pairs of sentences."""

    steps: int = bounded(3600, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    # Optimizer and learning rate.
    optimizer: OptimizerConfig = MuonConfig(lr=0.01, fallback=AdamWConfig(lr=0.003))
    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)  # of the longer side
    label_smoothing: float = bounded(0.1, at_least=0.0, below=1.0)  # of the targets


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateTraining:
    """The stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    pairs: TranslateStage = field(default_factory=TranslateStage)  # the only stage


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateRecipe:
    """Recipe of the task `translate`."""

    task: Literal["translate"] = "translate"  # translation
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: TranslateData  # paths of the files
    # Tokenizer of both languages.
    encode: TokenizerConfig = field(default_factory=lambda: BytePairConfig(vocab_size=6000))
    model: EncoderDecoderConfig = field(default_factory=EncoderDecoderConfig)  # architecture
    training: TranslateTraining = field(default_factory=TranslateTraining)  # training stage
    search: SearchConfig = SearchConfig(beam=5)  # beam search or sampling


def guess_language(files: Sequence[Path]) -> list[str]:
    """Return an override with the language of the second file, such as `de` of train.de."""
    name = re.search(r"\.([a-z]{2})(\.gz|\.zst)?$", files[1].name) if len(files) > 1 else None
    return [f"data.target_language={name[1]}"] if name else []


def suggest_vocab_size(recipe: TranslateRecipe, splits: Splits[Pair]) -> dict[str, object]:
    """Suggest a smaller vocabulary for few training pairs."""
    assert isinstance(recipe.encode, BytePairConfig), "a new recipe has the default"
    size = max(500, len(splits["train"]) // 4 // 100 * 100)
    return {"encode.vocab_size": min(recipe.encode.vocab_size, size)}


def check_translations(files: Sequence[Path]) -> list[str]:
    """Reject labels in place of translations, and note that BLEU needs four words."""
    where = files[min(1, len(files) - 1)]
    pairs = read_pairs_tsv(where) if len(files) == 1 else read_parallel(files[0], where)
    targets = [pair.target.strip() for pair in pairs]
    distinct = Counter(targets)
    if len(targets) >= 20 and len(distinct) <= len(targets) // 10:
        shown = ", ".join(repr(label[:20]) for label, _ in distinct.most_common(3))
        raise UserError(
            f"{where}: expected translations, got labels ({len(distinct)} different values in "
            f"{len(targets):,} lines: {shown})",
            fix="write a sentence and its translation in each line; BLEU of labels is always 0",
        )
    short = sum(len(WORD.findall(target)) < BLEU_ORDER for target in targets)
    if short > 0.9 * len(targets):
        note = f"note: {short / len(targets):.0%} of the translations in {where} have fewer than "
        return [f"{note}{BLEU_ORDER} words, so BLEU will be about 0; use chrF instead"]
    return []


class TranslatePredictor(Predictor[TranslateRecipe, Pair, Vocabulary, EncoderDecoder]):
    """A trained translator."""

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        """Translate each text; a long text in chunks, a blank text to an empty output."""
        chunks = [
            (owner, chunk, (*keys[owner], number))
            for owner, tokens in enumerate(self.vocabulary.encode(inputs))
            if inputs[owner].strip() and len(tokens)
            for number, chunk in enumerate(self._chunks(tokens))
        ]
        owners, tokens, chunk_keys = zip(*chunks, strict=True) if chunks else ((), (), ())
        joined: Beams = [[] for _ in inputs]
        for owner, beam in zip(owners, self._search(tokens, chunk_keys, nbest), strict=True):
            joined[owner] = concatenate(joined[owner], beam) if joined[owner] else beam
        for text, beam in zip(inputs, joined, strict=True):
            yield beam_prediction(text, beam or [TokenHypothesis([], 0.0)], self.vocabulary, nbest)

    def evaluate(self, examples: Sequence[Pair], condition: str | None = None) -> Evaluation:
        predictions = list(self.predict([pair.source for pair in examples]))
        expected = [pair.target for pair in examples]
        outputs = [prediction.output for prediction in predictions]
        samples, notes = translation_samples(outputs, expected, self.recipe.data.target_language)
        sources = [pair.source for pair in examples if pair.source.split()]
        short = (source for source in sources if len(source.split()) <= MAX_EXAMPLE_WORDS)
        return Evaluation(
            n=len(examples),
            samples=samples,
            notes=notes,
            predictions=predictions,
            expected=expected,
            example=next(short, min(sources, key=len, default="")),
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Return the attention of the best hypothesis; of a long source, for the first chunk."""
        model, vocabulary = self.model.eval(), self.vocabulary
        (tokens,) = vocabulary.encode([text])
        if not text.strip() or len(tokens) == 0:
            return None
        chunk, *_ = self._chunks(tokens)
        ((best, *_),) = self._search([chunk], [(0, 0)])
        outputs = [*best.tokens, END][: max_tokens(model, self.recipe.search)]
        source = torch.tensor([chunk.tolist()], device=self.device)
        inputs = decoder_inputs(outputs, self.device)
        texts = vocabulary.token_texts(chunk.tolist())
        encoder = self_view("source tokens", texts, is_encoder_attention)
        return AttentionExample(
            title=f"{text} → {output_title(vocabulary.decode([best.tokens])[0])}",
            run=lambda: model.states(source, torch.ones_like(source, dtype=torch.bool), inputs),
            views=output_views(outputs, vocabulary.token_texts, encoder, "source tokens"),
            truncation=truncation_of(len(chunk), len(tokens), "first"),
        )

    def _search(self, sources: Sequence[IntArray], keys: Keys, nbest: int = 1) -> Beams:
        """Return the best hypotheses for each source that fits the model, in order."""
        model, search = self.model.eval(), self.recipe.search
        stepper, limit = Seq2SeqStepper(model, END), max_tokens(model, search)
        beams: dict[int, list[TokenHypothesis]] = {}
        # The longest first, so that a batch that does not fit in memory fails at once.
        ranked = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        for start in range(0, len(ranked), BATCH_SIZE):
            chosen = ranked[start : start + BATCH_SIZE]
            rows, row_keys = [sources[index] for index in chosen], [keys[index] for index in chosen]
            batch = search_tokens(stepper, rows, self.device, search, limit, nbest, row_keys)
            beams |= zip(chosen, batch, strict=True)
        return [beams[index] for index in range(len(sources))]

    def _chunks(self, tokens: IntArray) -> list[IntArray]:
        return cut_between_words(tokens, self.model.max_source or MAX_SOURCE, self.vocabulary)


def cut_between_words(tokens: IntArray, max_length: int, vocabulary: Vocabulary) -> list[IntArray]:
    """Cut a long text into chunks, each before a word of its second half if there is one."""
    chunks = []
    while len(tokens) > max_length:
        ends = range(max_length, max_length // 2 - 1, -1)
        cut = next((end for end in ends if vocabulary.begins_word(int(tokens[end]))), max_length)
        chunks.append(tokens[:cut])
        tokens = tokens[cut:]
    return [*chunks, tokens]


class TranslateTask(Task[TranslateRecipe, Pair, Vocabulary, EncoderDecoder]):
    """Translation."""

    recipe_type = TranslateRecipe
    vocabulary_type = Vocabulary
    predictor_type = TranslatePredictor
    layout = Layout[TranslateRecipe, Pair](
        calls={
            "pairs.tsv": ("train",),
            "train.en train.de": KEYS[:2],
            "train.en train.de dev.en dev.de": KEYS[:4],
            "train.en train.de dev.en dev.de test.en test.de": KEYS,
        },
        template=TEMPLATE,
        examples="pairs",
        stage="training.pairs",
        check=check_translations,
        overrides=guess_language,
        suggest=suggest_vocab_size,
    )

    def read_file(self, recipe: TranslateRecipe, path: Path) -> list[Pair]:
        return read_pairs(path)

    def read(self, recipe: TranslateRecipe, paths: Sequence[Path]) -> Sequence[Pair]:
        if len(paths) == 2:
            return read_pairs(ParallelFiles(source=paths[0], target=paths[1]))
        return super().read(recipe, paths)

    def read_splits(self, recipe: TranslateRecipe) -> Splits[Pair]:
        read_train, key = partial(read_pairs, keep_blank=False), lambda pair: pair.source
        return Splits(recipe.data, read_pairs, seed=recipe.seed, key=key, read_train=read_train)

    def input(self, example: Pair) -> str:
        return example.source if example.source.strip() else ""

    def fit(self, recipe: TranslateRecipe, train: Sequence[Pair]) -> Vocabulary:
        return recipe.encode.fit(chain.from_iterable((pair.source, pair.target) for pair in train))

    def build(self, recipe: TranslateRecipe, sizes: VocabularySizes) -> EncoderDecoder:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: TranslateRecipe, splits: Splits[Pair], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[EncoderDecoder]]:
        config = recipe.training.pairs
        sources, targets = encode_pairs(splits["train"], vocabulary, *max_lengths(recipe.model))
        lengths = np.maximum(sources.lengths, targets.lengths + 1)  # with the end token
        sampler = BucketSampler(lengths, config.batch_tokens, recipe.seed)
        dev, greedy = splits["dev"][:DEV_SENTENCES], replace(recipe, search=SearchConfig())

        def batch(step: int) -> list[Seq2SeqBatch]:
            chosen = sampler.batch(step)
            texts = shift_targets(targets.take(chosen), END, END, PAD)
            return [Seq2SeqBatch(*pad(sources.take(chosen), PAD), *texts)]

        def dev_bleu(model: EncoderDecoder) -> float:
            predictor = TranslatePredictor(greedy, splits, vocabulary, model)
            outputs = [best.output for best in predictor.predict([pair.source for pair in dev])]
            counts = bleu_counts(outputs, [pair.target for pair in dev], tokenize="13a")
            return float(bleu(counts.sum(axis=0, keepdims=True))[0])

        return [stage("pairs", config, batch, cross_entropy_loss(config.label_smoothing), dev_bleu)]

    def probe_sizes(
        self, recipe: TranslateRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        config = recipe.training.pairs
        sizes = token_sizes(config, rows, length, config.batch_tokens)
        tokens = sizes.letters["T"]
        return sizes._replace(letters={"B": sizes.letters["B"], "M": tokens, "T": tokens})

    def probe(
        self, recipe: TranslateRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[EncoderDecoder]:
        generator, entries = torch.Generator().manual_seed(0), vocabulary.entries
        source = random_tokens(generator, entries, letters["B"], letters["M"])
        batch = random_seq2seq_batch(source, letters["T"], entries, generator)
        return micro_batch(batch, cross_entropy_loss(recipe.training.pairs.label_smoothing))


def read_pairs(files: ParallelFiles | Path, *, keep_blank: bool = True) -> list[Pair]:
    """Read pairs from two files or from one."""
    if isinstance(files, Path):
        return read_pairs_tsv(files, keep_blank=keep_blank)
    return read_parallel(files.source, files.target, keep_blank=keep_blank)


def max_lengths(model: EncoderDecoderConfig) -> tuple[int, int]:
    """Return the maximum number of tokens of a source and of a target."""
    return model.max_source, model.decoder.max_length


def encode_pairs(
    pairs: Sequence[Pair], vocabulary: Vocabulary, max_source: int, max_target: int
) -> tuple[Ragged, Ragged]:
    """Return the tokens of both sides, without pairs that do not fit the model."""
    sources = vocabulary.encode([pair.source for pair in pairs])
    encoded = zip(sources, vocabulary.encode([pair.target for pair in pairs]), strict=True)
    fits = [
        pair for pair in encoded if 0 < len(pair[0]) <= max_source and len(pair[1]) < max_target
    ]
    if not fits:
        raise UserError(
            f"no training pair has at most {max_source} source and {max_target} target tokens",
            fix="split long lines into sentences, or raise model.encoder.max_length and "
            "model.decoder.max_length",
        )
    warn_unfit(len(pairs) - len(fits), len(pairs), "pairs")
    return ragged([source for source, _ in fits]), ragged([target for _, target in fits])
