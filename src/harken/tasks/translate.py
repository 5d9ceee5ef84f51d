"""Translation: an encoder reads a sentence, a decoder with cross-attention writes another.

    source tokens                        -> encoder states
    <end> target tokens                  -> target tokens <end>       (decoder inputs, targets)

Both languages share one vocabulary. A source that is longer than the model reads is translated in
chunks, cut between words; training leaves such pairs out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from harken.batch.bucketing import BucketSampler
from harken.batch.padding import pad
from harken.batch.pairs import PairBatch, RaggedPairs, pair_batch
from harken.batch.ragged import Numbers, ragged
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.stepper import TokenHypothesis, concatenate
from harken.encode.subwords import BytePairConfig, TokenizerConfig
from harken.encode.vocabulary import END, PAD, Vocabulary, VocabularySizes
from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.tsv import read_pairs_tsv, read_parallel
from harken.inspection.refs import is_encoder_attention
from harken.measure.bleu import bleu, bleu_counts, translation_samples
from harken.models.seq2seq import MAX_SOURCE, EncoderDecoder, EncoderDecoderConfig
from harken.tasks.attention_view import AttentionExample, output_title, self_view
from harken.tasks.prediction import (
    Evaluation,
    Indices,
    Prediction,
    prediction_of,
    sample_keys,
    truncation_of,
    warn_unfit,
)
from harken.tasks.seq2seq import decoder_inputs, max_tokens, output_views, search_outputs
from harken.tasks.task import (
    Layout,
    Predictor,
    ProbeSizes,
    Splits,
    Task,
    random_tokens,
    require_share,
    target_losses,
    token_sizes,
)
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.optimizer import AdamWConfig, MuonConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig

KEYS = [f"{split}.{side}" for split in ("train", "dev", "test") for side in ("source", "target")]
DEV_SENTENCES = 500  # translated greedily at each evaluation during training
BLEU_ORDER = 4
# Scripts without spaces, whose characters count as words, and all other words.
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+")
BATCH_SIZE = 64  # sentences searched in one batch
SHORT = 20  # words of a sentence whose attention is easy to read
TEMPLATE = """\
target_language = "{data.target_language}"    # whose rules part words where BLEU is counted

[encode]
kind = "{encode.kind}"    # or "unigram", "words", "characters"
vocab_size = {encode.vocab_size}    # of both languages together; leave out with "characters"

[model]
encoder.kind = "{model.encoder.kind}"    # or "stride2", "gated", or
# "lstm", "gru", "tanh" with encoder.direction = "both"
decoder.kind = "{model.decoder.kind}"    # or "rnn", which looks back by attention too
decoder.width = {model.decoder.width}

[training.pairs]
steps = {training.pairs.steps}
batch_tokens = {training.pairs.batch_tokens}
evaluate_every = {training.pairs.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
beam = {search.beam}
length_penalty = {search.length_penalty}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelFiles:
    """Two files whose lines correspond."""

    source: Path
    target: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateData:
    """Pairs of files, or files of `source<TAB>target`; a share for `dev` is split by source."""

    train: ParallelFiles | Path
    dev: ParallelFiles | Path | float = 0.02
    test: ParallelFiles | Path | None = None
    target_language: str = "en"  # whose rules split words, where BLEU is counted on Moses tokens

    def __post_init__(self) -> None:
        require_share(self.dev, "files")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateStage(StageConfig):
    """`label_smoothing` allows for a sentence having many correct translations."""

    steps: int = bounded(3600, at_least=0, at_most=MAX_STEPS)
    optimizer: OptimizerConfig = MuonConfig(lr=0.01, fallback=AdamWConfig(lr=0.003))
    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)
    label_smoothing: float = bounded(0.1, at_least=0.0, below=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateTraining:
    """One stage."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    pairs: TranslateStage = field(default_factory=TranslateStage)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateRecipe:
    """The recipe of a run."""

    task: Literal["translate"] = "translate"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: TranslateData
    encode: TokenizerConfig = field(default_factory=lambda: BytePairConfig(vocab_size=6000))
    model: EncoderDecoderConfig = field(default_factory=EncoderDecoderConfig)
    training: TranslateTraining = field(default_factory=TranslateTraining)
    search: SearchConfig = SearchConfig(beam=5)


def guess_language(files: Sequence[Path]) -> list[str]:
    """The `de` of a second file `train.de`."""
    name = re.search(r"\.([a-z]{2})(\.gz|\.zst)?$", files[1].name) if len(files) > 1 else None
    return [f"data.target_language={name[1]}"] if name else []


def suggest_size(recipe: TranslateRecipe, splits: Splits[Pair]) -> dict[str, object]:
    """A vocabulary whose subwords occur often enough to be learned."""
    assert isinstance(recipe.encode, BytePairConfig), "a new recipe has the default"
    size = max(500, len(splits["train"]) // 4 // 100 * 100)
    return {"encode.vocab_size": min(recipe.encode.vocab_size, size)}


def check_translations(files: Sequence[Path]) -> list[str]:
    """Reject labels in place of translations; say what to expect of very short ones."""
    where = files[min(1, len(files) - 1)]
    read = read_pairs_tsv(where) if len(files) == 1 else read_parallel(files[0], where)
    targets = [pair.target.strip() for pair in read.pairs]
    distinct = Counter(targets)
    if len(targets) >= 20 and len(distinct) <= len(targets) // 10:
        shown = ", ".join(repr(label[:20]) for label, _ in distinct.most_common(3))
        raise UserError(
            f"{where}: the translations have only {len(distinct)} different values in "
            f"{len(targets):,} lines ({shown}), so that they look like labels",
            fix="give a sentence and its translation in each line; BLEU of labels is always 0",
        )
    short = sum(len(WORD.findall(target)) < BLEU_ORDER for target in targets)
    if short > 0.9 * len(targets):
        note = f"note: {short / len(targets):.0%} of the translations in {where} have fewer than "
        return [f"{note}{BLEU_ORDER} words, so that BLEU will be about 0; read chrF instead"]
    return []


class TranslatePredictor(Predictor[TranslateRecipe, Pair, Vocabulary, EncoderDecoder]):
    """A trained translator."""

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Translate each text; a long text is joined from its chunks, a blank one stays blank."""
        keys = sample_keys(inputs, indices)
        chunks = [
            (owner, chunk, (*keys[owner], number))
            for owner, tokens in enumerate(self.vocabulary.encode(inputs))
            if inputs[owner].strip() and len(tokens)
            for number, chunk in enumerate(self._chunks(tokens))
        ]
        owners, tokens, chunk_keys = zip(*chunks, strict=True) if chunks else ((), (), ())
        joined: list[list[TokenHypothesis]] = [[] for _ in inputs]
        for owner, beam in zip(owners, self._search(tokens, chunk_keys, nbest), strict=True):
            joined[owner] = concatenate(joined[owner], beam) if joined[owner] else beam
        for text, beam in zip(inputs, joined, strict=True):
            yield prediction_of(text, beam or [TokenHypothesis([], 0.0)], self.vocabulary, nbest)

    def evaluate(self, examples: Sequence[Pair], condition: str | None = None) -> Evaluation:
        predictions = list(self.predict([pair.source for pair in examples]))
        expected = [pair.target for pair in examples]
        outputs = [prediction.output for prediction in predictions]
        samples, notes = translation_samples(outputs, expected, self.recipe.data.target_language)
        sources = [pair.source for pair in examples if pair.source.split()]
        short = (source for source in sources if len(source.split()) <= SHORT)
        return Evaluation(
            n=len(examples),
            samples=samples,
            notes=notes,
            predictions=predictions,
            expected=expected,
            example=next(short, min(sources, key=len, default="")),
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Attention of the hypothesis that is kept; of a long source, the first chunk."""
        model, vocabulary = self.model.eval(), self.vocabulary
        (tokens,) = vocabulary.encode([text])
        if not text.strip() or len(tokens) == 0:
            return None
        chunk, *_ = self._chunks(tokens)
        ((best, *_),) = self._search([chunk], [(0, 0)])
        outputs = [*best.tokens, END][: max_tokens(model, self.recipe.search)]
        source = torch.tensor([chunk.tolist()], device=self.device)
        inputs = decoder_inputs(outputs, self.device)
        texts = vocabulary.pieces(chunk.tolist())
        encoder = self_view("source tokens", texts, is_encoder_attention)
        return AttentionExample(
            title=f"{text} → {output_title(vocabulary.decode([best.tokens])[0])}",
            run=lambda: model.states(source, torch.ones_like(source, dtype=torch.bool), inputs),
            views=output_views(outputs, vocabulary.pieces, encoder, "source tokens"),
            truncation=truncation_of(len(chunk), len(tokens), "first"),
        )

    def _search(
        self, sources: Sequence[Numbers], keys: Sequence[SampleKey], nbest: int = 1
    ) -> list[list[TokenHypothesis]]:
        """The best hypotheses for each source that fits the model, in order."""
        model, beams = self.model.eval(), [list[TokenHypothesis]() for _ in sources]
        # Similar lengths together, the longest first: what does not fit in memory fails at once.
        ranked = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        for start in range(0, len(ranked), BATCH_SIZE):
            chosen = ranked[start : start + BATCH_SIZE]
            source, present = pad(ragged([sources[index] for index in chosen]), PAD)
            batch = source.to(self.device), present.to(self.device)
            batch_keys = [keys[index] for index in chosen]
            found = search_outputs(model, *batch, self.recipe.search, nbest, batch_keys)
            for index, beam in zip(chosen, found, strict=True):
                beams[index] = beam
        return beams

    def _chunks(self, tokens: Numbers) -> list[Numbers]:
        most = self.model.max_source or MAX_SOURCE
        return cut_between_words(tokens, most, self.vocabulary)


def cut_between_words(tokens: Numbers, most: int, vocabulary: Vocabulary) -> list[Numbers]:
    """Chunks of at most `most` tokens, each cut before a word if there is one."""
    chunks = []
    while len(tokens) > most:
        places = range(most, most // 2 - 1, -1)
        cut = next((at for at in places if vocabulary.begins_word(int(tokens[at]))), most)
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
        suggest=suggest_size,
    )

    def read_file(self, recipe: TranslateRecipe, path: Path) -> list[Pair]:
        return read_pairs(path)

    def read(self, recipe: TranslateRecipe, paths: Sequence[Path]) -> Sequence[Pair]:
        if len(paths) == 2:
            return read_pairs(ParallelFiles(source=paths[0], target=paths[1]))
        return super().read(recipe, paths)

    def read_splits(self, recipe: TranslateRecipe) -> Splits[Pair]:
        read_train = partial(read_pairs, keep_blank=False)
        return Splits(
            recipe.data,
            read_pairs,
            seed=recipe.seed,
            key=attrgetter("source"),
            read_train=read_train,
        )

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
        pairs = encode_pairs(splits["train"], vocabulary, *max_lengths(recipe.model))
        order = BucketSampler(pairs.lengths, config.batch_tokens, recipe.seed)
        dev, greedy = splits["dev"][:DEV_SENTENCES], replace(recipe, search=SearchConfig())

        def batch(step: int) -> list[PairBatch]:
            return [pair_batch(pairs.take(order.batch(step)), END, END, PAD)]

        def dev_bleu(model: EncoderDecoder) -> float:
            predictor = TranslatePredictor(greedy, splits, vocabulary, model)
            outputs = [best.output for best in predictor.predict([pair.source for pair in dev])]
            counts = bleu_counts(outputs, [pair.target for pair in dev], tokenize="13a")
            return float(bleu(counts.sum(axis=0, keepdims=True))[0])

        return [stage("pairs", config, batch, translation_loss(config.label_smoothing), dev_bleu)]

    def probe_sizes(
        self, recipe: TranslateRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        stage = recipe.training.pairs
        sizes = token_sizes(stage, rows, length, stage.batch_tokens, None)
        length = sizes.letters["T"]
        return sizes._replace(letters={"B": sizes.letters["B"], "M": length, "T": length})

    def probe(
        self, recipe: TranslateRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[EncoderDecoder]:
        generator, rows, entries = (
            torch.Generator().manual_seed(0),
            letters["B"],
            vocabulary.entries,
        )
        tokens = (random_tokens(generator, entries, rows, letters[name]) for name in "MTT")
        source, inputs, targets = tokens
        batch = PairBatch(source, torch.ones_like(source, dtype=torch.bool), inputs, targets)
        return micro_batch(batch, translation_loss(recipe.training.pairs.label_smoothing))


def read_pairs(files: ParallelFiles | Path, *, keep_blank: bool = True) -> list[Pair]:
    """Read pairs of two files or of one."""
    if isinstance(files, Path):
        return list(read_pairs_tsv(files, keep_blank=keep_blank).pairs)
    return list(read_parallel(files.source, files.target, keep_blank=keep_blank).pairs)


def max_lengths(model: EncoderDecoderConfig) -> tuple[int, int]:
    """The most tokens of a source and of a target."""
    return model.max_source, model.decoder.max_length


def encode_pairs(
    pairs: Sequence[Pair], vocabulary: Vocabulary, max_source: int, max_target: int
) -> RaggedPairs:
    """Tokens of both sides; pairs that do not fit the model are left out."""
    sources = vocabulary.encode([pair.source for pair in pairs])
    targets = vocabulary.encode([pair.target for pair in pairs])
    fits = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if 0 < len(source) <= max_source and len(target) < max_target
    ]
    if not fits:
        raise UserError(
            f"no training pair has at most {max_source} source and {max_target} target tokens",
            fix="split long lines into sentences, or raise model.encoder.max_length and "
            "model.decoder.max_length",
        )
    warn_unfit(len(pairs) - len(fits), len(pairs), "pairs")
    return RaggedPairs(*map(ragged, zip(*fits, strict=True)))


def translation_loss(smoothing: float) -> Callable[[EncoderDecoder, PairBatch], Tensor]:
    """Cross-entropy with label smoothing, summed over the targets."""

    def loss(model: EncoderDecoder, batch: PairBatch) -> Tensor:
        inputs = (batch.source, batch.present, batch.inputs)
        return target_losses(model, batch.targets, *inputs, smoothing=smoothing).sum()

    return loss
