"""Translation with an encoder and a decoder with cross-attention.

    source tokens         -> encoder states
    <end> target tokens   -> target tokens <end>       (decoder inputs, targets)

Both languages share one vocabulary. A source that is longer than the model's limit is translated in
chunks, cut between words; training leaves such pairs out. The training pairs are encoded once,
piece by piece, and read from the stored tokens, so they may be larger than the memory.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Literal

import torch

from harken.batch.bucketing import BucketSampler
from harken.batch.padding import Seq2SeqBatch, pad, shift_targets
from harken.batch.pair_shards import SOURCE, TARGET, PairShards
from harken.batch.ragged import IntArray, ragged
from harken.batch.shards import write_shards
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.search import SearchConfig
from harken.decode.stepper import Seq2SeqStepper, TokenHypothesis, concatenate
from harken.encode.parallel import encode_sentences
from harken.encode.subwords import BytePairConfig, TokenizerConfig
from harken.encode.vocabulary import END, PAD, Vocabulary, VocabularySizes
from harken.errors import UserError
from harken.formats.corpus import Files
from harken.formats.examples import Pair
from harken.formats.pairs import PairCorpus, PairSample, ParallelFiles, find_pairs, hold_out_pairs
from harken.inspection.refs import is_encoder_attention
from harken.measure.bleu import bleu
from harken.models.seq2seq import MAX_SOURCE, EncoderDecoder, EncoderDecoderConfig
from harken.tasks.attention_view import AttentionExample, output_title, self_attention_view
from harken.tasks.columns import PairColumns
from harken.tasks.dummy_batches import DummySizes, random_seq2seq_batch, random_tokens, token_sizes
from harken.tasks.prediction import Evaluation, Prediction, beam_prediction, truncation_of
from harken.tasks.seq2seq import (
    Beams,
    cross_entropy_loss,
    decoder_inputs,
    max_tokens,
    output_views,
    scored_output,
    search_tokens,
)
from harken.tasks.task import Keys, Layout, Predictor, Splits, Task, require_share, warn_unfit
from harken.training.distributed import map_batches
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.optimizer import AdamWConfig, MuonConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

# The keys of the files in [data].
DATA_KEYS = [
    f"{split}.{side}" for split in ("train", "dev", "test") for side in ("source", "target")
]
DEV_SENTENCES = 500  # translated greedily at each evaluation during training
BLEU_ORDER = 4
# A word, or a character of a script without spaces.
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+")
BATCH_SIZE = 64  # sentences in a search
MAX_CHECKED = 2**16  # pairs that `harken new` checks
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
class TranslateData:
    """Two texts whose lines correspond, or files with both sides of each pair."""

    train: ParallelFiles | Files  # two texts, or path, list of paths or glob of pair files
    dev: ParallelFiles | Files | float = 0.02  # validation files, or a share to hold out
    test: ParallelFiles | Files | None = None  # files that are not used in training
    columns: PairColumns = PairColumns()  # columns of tables
    # characters of training pairs that the tokenizer is fitted on, spread evenly
    tokenizer_sample: int = bounded(2**26, at_least=1, at_most=2**40)
    target_language: str = "en"  # language of the Moses tokenizer, which BLEU uses

    def __post_init__(self) -> None:
        require_share(self.dev, "files")

    def corpus(self, files: ParallelFiles | Files) -> PairCorpus:
        """Return the pairs of these files."""
        return find_pairs(files, (self.columns.source, self.columns.target))


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateStage(StageConfig):
    """Training on pairs of sentences."""

    steps: int = bounded(3600, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    # Optimizer and learning rate.
    optimizer: OptimizerConfig = MuonConfig(lr=0.01, fallback=AdamWConfig(lr=0.003))
    # tokens per batch of the longer side, padding included
    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)
    label_smoothing: float = bounded(0.1, at_least=0.0, below=1.0)  # of the targets


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateTraining:
    """Runtime, and the only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
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
    """Return a recipe override with the language of the second file, `de` for train.de."""
    name = re.search(r"\.([a-z]{2})(\.gz|\.zst)?$", files[1].name) if len(files) > 1 else None
    return [f"data.target_language={name[1]}"] if name else []


def suggest_vocab_size(recipe: TranslateRecipe, splits: Splits[Pair]) -> dict[str, object]:
    """Suggest a smaller vocabulary for few training pairs."""
    assert isinstance(recipe.encode, BytePairConfig), "the default tokenizer"
    size = max(500, count_pairs(splits["train"]) // 4 // 100 * 100)
    return {"encode.vocab_size": min(recipe.encode.vocab_size, size)}


def check_translations(recipe: TranslateRecipe, files: Sequence[Path]) -> list[str]:
    """Reject labels in place of translations; note if most targets are too short for BLEU."""
    path = files[min(1, len(files) - 1)]
    side = ParallelFiles(source=files[0], target=path)
    pairs = recipe.data.corpus(path if len(files) == 1 else side)
    targets = [pair.target.strip() for pair in islice(pairs.pairs(), MAX_CHECKED)]
    distinct = Counter(targets)
    if len(targets) >= 20 and len(distinct) <= len(targets) // 10:
        shown = ", ".join(repr(label[:20]) for label, _ in distinct.most_common(3))
        raise UserError(
            f"{path}: expected translations, got labels ({len(distinct)} different values in "
            f"{len(targets):,} lines: {shown})",
            fix="write a sentence and its translation in each line; BLEU of labels is always 0",
        )
    short = sum(len(WORD.findall(target)) < BLEU_ORDER for target in targets)
    if short > 0.9 * len(targets):
        note = f"note: {short / len(targets):.0%} of the translations in {path} have fewer than "
        return [f"{note}{BLEU_ORDER} words, so BLEU will be about 0; use chrF instead"]
    return []


class TranslatePredictor(Predictor[TranslateRecipe, Pair, Vocabulary, EncoderDecoder]):
    """A trained translator."""

    def predict_batch(self, inputs: Sequence[str], keys: Keys, nbest: int) -> Iterator[Prediction]:
        """Translate each text, a long text in chunks; the output of a blank text is empty."""
        chunks = [
            (index, chunk, (*keys[index], number))
            for index, tokens in enumerate(self.vocabulary.encode(inputs))
            if inputs[index].strip() and len(tokens)
            for number, chunk in enumerate(self._chunks(tokens))
        ]
        indices, tokens, chunk_keys = zip(*chunks, strict=True) if chunks else ((), (), ())
        joined: Beams = [[] for _ in inputs]
        for index, beam in zip(indices, self._search(tokens, chunk_keys, nbest), strict=True):
            joined[index] = concatenate(joined[index], beam) if joined[index] else beam
        for text, beam in zip(inputs, joined, strict=True):
            yield beam_prediction(text, beam or [TokenHypothesis([], 0.0)], self.vocabulary, nbest)

    def evaluate(self, examples: Sequence[Pair], condition: str | None = None) -> Evaluation:
        from harken.measure.translations import translation_samples  # predicting needs no sacrebleu

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

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention of the best hypothesis for the first chunk of the source."""
        model, vocabulary = self.model.eval(), self.vocabulary
        (tokens,) = vocabulary.encode([text])
        if not text.strip() or len(tokens) == 0:
            return None
        chunk, *_ = self._chunks(tokens)
        ((best, *_),) = self._search([chunk], [(0, 0)])
        limit, texts = max_tokens(model, self.recipe.search), vocabulary.token_texts(chunk.tolist())
        target = scored_output(best.tokens, output, vocabulary, limit)
        inputs = [*pad(ragged([chunk]), PAD), decoder_inputs(target.targets, self.device)]
        encoder = self_attention_view("source tokens", texts, is_encoder_attention)
        return AttentionExample(
            title=f"{text} → {output_title(target.text)}",
            run=lambda: model(*(part.to(self.device) for part in inputs))[0].log_softmax(dim=-1),
            views=output_views(target.targets, vocabulary.token_texts, encoder, "source tokens"),
            output=target,
            truncation=truncation_of(len(chunk), len(tokens), "first"),
        )

    def _search(self, sources: Sequence[IntArray], keys: Keys, nbest: int = 1) -> Beams:
        """Return the best hypotheses for each source, in order; every source must fit the model."""
        model, search = self.model.eval(), self.recipe.search
        stepper, limit = Seq2SeqStepper(model, END), max_tokens(model, search)
        # The longest sources come first, so that running out of memory is noticed early.
        ranked = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        starts = range(0, len(ranked), BATCH_SIZE)
        batches = (ranked[start : start + BATCH_SIZE] for start in starts)

        def search_batch(chosen: Sequence[int]) -> Beams:
            rows, row_keys = [sources[index] for index in chosen], [keys[index] for index in chosen]
            return search_tokens(stepper, rows, self.device, search, limit, nbest, row_keys)

        ranked_beams = chain.from_iterable(map_batches(search_batch, batches))
        beams = dict(zip(ranked, ranked_beams, strict=True))
        return [beams[index] for index in range(len(sources))]

    def _chunks(self, tokens: IntArray) -> list[IntArray]:
        return cut_between_words(tokens, self.model.max_source or MAX_SOURCE, self.vocabulary)


def cut_between_words(tokens: IntArray, max_length: int, vocabulary: Vocabulary) -> list[IntArray]:
    """Cut a long text into chunks of at most `max_length` tokens, between words if possible."""
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
            "train.en train.de": DATA_KEYS[:2],
            "train.en train.de dev.en dev.de": DATA_KEYS[:4],
            "train.en train.de dev.en dev.de test.en test.de": DATA_KEYS,
        },
        template=TEMPLATE,
        examples="pairs",
        stage="training.pairs",
        count=lambda pairs: count_pairs(pairs),
        check=check_translations,
        overrides=guess_language,
        suggest=suggest_vocab_size,
    )

    def read_file(self, recipe: TranslateRecipe, path: Path) -> list[Pair]:
        return list(recipe.data.corpus(path).pairs(keep_blank=True))

    def read(self, recipe: TranslateRecipe, paths: Sequence[Path]) -> Sequence[Pair]:
        if len(paths) == 2:
            files = ParallelFiles(source=paths[0], target=paths[1])
            return list(find_pairs(files).pairs(keep_blank=True))
        return super().read(recipe, paths)

    def read_splits(self, recipe: TranslateRecipe) -> Splits[Pair]:
        data = recipe.data

        def read_parts() -> tuple[Sequence[Pair], Sequence[Pair]]:
            corpus, held_out = data.corpus(data.train), list[Pair]()
            if isinstance(data.dev, float):
                corpus, held_out = hold_out_pairs(corpus, data.dev, recipe.seed)
            return PairSample(corpus, data.tokenizer_sample), held_out

        def read(files: ParallelFiles | Files) -> list[Pair]:
            return list(data.corpus(files).pairs(keep_blank=True))

        return Splits(data, read, read_parts=read_parts)

    def input(self, example: Pair) -> str:
        return example.source if example.source.strip() else ""

    def fit(self, recipe: TranslateRecipe, train: Sequence[Pair]) -> Vocabulary:
        return recipe.encode.fit(chain.from_iterable((pair.source, pair.target) for pair in train))

    def build(self, recipe: TranslateRecipe, sizes: VocabularySizes) -> EncoderDecoder:
        return recipe.model.build(sizes.entries, recipe.seed)

    def stages(
        self, recipe: TranslateRecipe, splits: Splits[Pair], vocabulary: Vocabulary, cache: Path
    ) -> list[Stage[EncoderDecoder]]:
        from harken.measure.translations import bleu_counts

        config = recipe.training.pairs
        train = splits["train"]
        assert isinstance(train, PairSample), "the training split of translate is a PairSample"
        pairs = encode_pairs(train, vocabulary, *max_lengths(recipe.model), cache)
        sampler = BucketSampler(pairs, config.batch_tokens, recipe.seed)
        dev, greedy = splits["dev"][:DEV_SENTENCES], replace(recipe, search=SearchConfig())

        def batch(step: int) -> list[Seq2SeqBatch]:
            sources, targets = pairs.take(sampler.batch(step))
            texts = shift_targets(targets, END, END, PAD)
            return [Seq2SeqBatch(*pad(sources, PAD), *texts)]

        def dev_bleu(model: EncoderDecoder) -> float:
            predictor = TranslatePredictor(greedy, splits, vocabulary, model)
            outputs = [best.output for best in predictor.predict([pair.source for pair in dev])]
            counts = bleu_counts(outputs, [pair.target for pair in dev], tokenize="13a")
            return float(bleu(counts.sum(axis=0, keepdims=True))[0])

        return [stage("pairs", config, batch, cross_entropy_loss(config.label_smoothing), dev_bleu)]

    def dummy_sizes(
        self, recipe: TranslateRecipe, rows: int | None, length: int | None
    ) -> DummySizes:
        config = recipe.training.pairs
        dummy = token_sizes(config, rows, length, config.batch_tokens)
        tokens = dummy.sizes["T"]
        return dummy._replace(sizes={"B": dummy.sizes["B"], "M": tokens, "T": tokens})

    def dummy_batch(
        self, recipe: TranslateRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[EncoderDecoder]:
        generator, entries = torch.Generator().manual_seed(0), vocabulary.entries
        source = random_tokens(generator, entries, sizes["B"], sizes["M"])
        batch = random_seq2seq_batch(source, sizes["T"], entries, generator)
        return micro_batch(batch, cross_entropy_loss(recipe.training.pairs.label_smoothing))


def max_lengths(model: EncoderDecoderConfig) -> tuple[int, int]:
    """Return the maximum number of tokens of a source and of a target."""
    return model.max_source, model.decoder.max_length


def encode_pairs(
    train: PairSample, vocabulary: Vocabulary, max_source: int, max_target: int, cache: Path
) -> PairShards:
    """Return the tokens of the pairs that fit the model, which are first encoded and stored."""
    size, corpus = train.size, train.corpus
    total, tokens = size.source_characters + size.target_characters, len(vocabulary)

    def encode(side: str, done: int, skip: int) -> Iterator[list[IntArray]]:
        sentences = map(attrgetter(side), corpus.pairs())
        return encode_sentences(vocabulary, sentences, skip, done, total)

    write_shards(cache / SOURCE, partial(encode, SOURCE, 0), tokens)
    write_shards(cache / TARGET, partial(encode, TARGET, size.source_characters), tokens)
    pairs = PairShards(cache, max_source, max_target)
    if len(pairs) == 0:
        raise UserError(
            f"no training pair has at most {max_source} source and {max_target - 1} target tokens",
            fix="split long lines into sentences, or raise model.encoder.max_length and "
            "model.decoder.max_length",
        )
    warn_unfit(pairs.num_unfit, size.pairs, "pairs")
    return pairs


def count_pairs(pairs: Sequence[Pair]) -> int:
    """Return the number of pairs of a split; of the training split, also the unread ones."""
    return pairs.size.pairs if isinstance(pairs, PairSample) else len(pairs)
