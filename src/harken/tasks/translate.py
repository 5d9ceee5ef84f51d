"""Sentence to sentence: an encoder reads one, a decoder writes the other, looking back.

    source tokens                        -> memory
    <end> target tokens                  -> target tokens <end>       (what is told, what is wanted)

Both languages share one vocabulary, fitted on both sides of the training pairs. A source that is
longer than the model reads is translated in pieces, cut between words; training leaves such pairs
out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor, nn

from harken.batch.bucketing import Order
from harken.batch.padding import IGNORE, pad
from harken.batch.pairs import PairBatch, RaggedPairs, pair_batch
from harken.batch.ragged import Numbers, ragged
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.found import Found, follow
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.seek import seek
from harken.decode.step import WritingSteps
from harken.encode.subwords import BytePairConfig, UnitsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary
from harken.errors import UserError
from harken.formats.examples import Pair
from harken.formats.parallel import read_pairs_tsv, read_parallel
from harken.formats.split import hold_out
from harken.inspection.refs import is_cross_attention, is_encoder_attention
from harken.layers.losses import cross_entropy_
from harken.measure.bleu import bleu, bleu_counts, translation_samples
from harken.models.encoder_decoder import (
    LONGEST_SOURCE,
    EncoderDecoder,
    EncoderDecoderConfig,
)
from harken.tasks.looking import output_title, reading, writing
from harken.tasks.task import (
    AttentionExample,
    AttentionView,
    Evaluation,
    Indices,
    Prediction,
    Trained,
    keys_of,
    prediction_of,
    truncation_of,
    warn_unfit,
)
from harken.training.loop import Stage, StageConfig
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, MuonConfig, OptimiserConfig

TRANSLATED_TOGETHER = 64  # sentences searched in one batch
DEV_SENTENCES = 500  # translated greedily whenever training stops to evaluate


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelFiles:
    """Two files whose lines stand side by side."""

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
        if isinstance(self.dev, float) and not 0 < self.dev < 1:
            raise ValueError(f"dev = {self.dev} is no share; wanted files or a number in (0, 1)")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateStage(StageConfig):
    """`smoothing` of the targets keeps a model from being sure of one translation among many."""

    steps: int = bounded(3600, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = MuonConfig(rate=0.01, rest=AdamWConfig(rate=0.003))
    batch_tokens: int = bounded(4096, at_least=1, at_most=MAX_BATCH)
    smoothing: float = bounded(0.1, at_least=0.0, below=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateTraining:
    """One stage."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    pairs: TranslateStage = field(default_factory=TranslateStage)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateRecipe:
    """The whole of a run."""

    task: Literal["translate"] = "translate"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: TranslateData
    encode: UnitsConfig = field(default_factory=lambda: BytePairConfig(size=6000))
    model: EncoderDecoderConfig = field(default_factory=EncoderDecoderConfig)
    training: TranslateTraining = field(default_factory=TranslateTraining)
    search: SearchConfig = SearchConfig(beam=5)


class TranslateTask:
    """See the top of this file."""

    def read(self, recipe: TranslateRecipe) -> Mapping[str, list[Pair]]:
        data = recipe.data
        train = read_pairs(data.train)
        if isinstance(data.dev, float):
            kept, held = hold_out(train, data.dev, recipe.seed, key=lambda pair: pair.source)
            splits = {"train": kept, "dev": held}
        else:
            splits = {"train": train, "dev": read_pairs(data.dev, keep_blank=True)}
        if data.test is not None:
            splits["test"] = read_pairs(data.test, keep_blank=True)
        return splits

    def read_files(self, recipe: TranslateRecipe, paths: Sequence[Path]) -> list[Pair]:
        if len(paths) == 2:
            return read_pairs(ParallelFiles(source=paths[0], target=paths[1]), keep_blank=True)
        return read_pairs(paths[0], keep_blank=True)

    def fit(self, recipe: TranslateRecipe, splits: Mapping[str, list[Pair]]) -> Vocabulary:
        return recipe.encode.fit(
            chain.from_iterable((pair.source, pair.target) for pair in splits["train"])
        )

    def restore(self, path: Path) -> Vocabulary:
        return Vocabulary.load(path)

    def build(self, recipe: TranslateRecipe, fitted: Vocabulary) -> EncoderDecoder:
        return recipe.model.build(len(fitted), recipe.seed)

    def stages(
        self,
        recipe: TranslateRecipe,
        splits: Mapping[str, list[Pair]],
        fitted: Vocabulary,
        cache: Path,
    ) -> list[Stage]:
        config = recipe.training.pairs
        pairs = encode_pairs(splits["train"], fitted, *longest(recipe.model))
        order = Order(pairs.lengths, config.batch_tokens, recipe.seed)
        dev = splits["dev"][:DEV_SENTENCES]
        greedy = SearchConfig()

        def batch(step: int) -> list[PairBatch]:
            return [pair_batch(pairs.take(order.batch(step)), END, END, PAD)]

        def loss(model: nn.Module, part: PairBatch) -> Tensor:
            return smoothed_loss(model, part, config.smoothing)

        def dev_bleu(model: nn.Module) -> float:
            model.eval()
            found = translate(
                cast(EncoderDecoder, model), fitted, [one.source for one in dev], greedy
            )
            said = [prediction_of("", one, fitted, 1).output for one in found]
            counts = bleu_counts(said, [one.target for one in dev], tokenize="13a")
            return float(bleu(counts.sum(axis=0, keepdims=True))[0])

        return [Stage(name="pairs", config=config, batch=batch, loss=loss, evaluate=dev_bleu)]

    def evaluate(self, trained: Trained, examples: Sequence[Pair]) -> Evaluation:
        predictions = list(self.predict(trained, [pair.source for pair in examples]))
        expected = [pair.target for pair in examples]
        samples, notes = translation_samples(
            [one.output for one in predictions], expected, trained.recipe.data.target_language
        )
        return Evaluation(
            n=len(examples),
            samples=samples,
            notes=notes,
            predictions=predictions,
            expected=expected,
        )

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        """A blank source has a blank translation, of which the model is not asked."""
        model = cast(EncoderDecoder, trained.model)
        model.eval()
        keys = keys_of(inputs, indices)
        found = translate(model, trained.fitted, inputs, trained.recipe.search, nbest, keys)
        for text, one in zip(inputs, found, strict=True):
            yield prediction_of(text, one, trained.fitted, nbest)

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample | None:
        inputs = [one.input for one in evaluation.predictions if one.input.split()]
        if not inputs:
            return None
        short = [text for text in inputs if len(text.split()) <= 20]
        return self.look(trained, short[0] if short else min(inputs, key=len))

    def look(self, trained: Trained, asked: str) -> AttentionExample | None:
        """The hypothesis that is kept; of a source too long to be read at once, the first piece."""
        model, pieces = cast(EncoderDecoder, trained.model).eval(), trained.fitted.pieces
        (tokens,) = trained.fitted.encode([asked])
        if not asked.strip() or len(tokens) == 0:
            return None
        piece, *_ = cut_between_words(tokens, room_of(model), trained.fitted)
        ((found, *_),) = search_pieces(model, [piece], trained.recipe.search, [(0, 0)])
        most = longest_written(model, trained.recipe.search)
        wanted = [*found.tokens, END][:most]  # a text without an end fills its room
        source, inputs = (
            torch.tensor([one], device=trained.device)
            for one in (piece.tolist(), [END, *wanted[:-1]])
        )
        read, told, decided = map(pieces, (piece.tolist(), [END, *wanted[:-1]], wanted))
        return AttentionExample(
            title=f"{asked} → {output_title(trained.fitted.decode([found.tokens])[0])}",
            run=lambda: model.states(source, torch.ones_like(source, dtype=torch.bool), inputs),
            views=[
                AttentionView(
                    title="Words written, looking at words read",
                    matches=is_cross_attention,
                    queries=decided,
                    keys=read,
                ),
                reading("Words read", read, is_encoder_attention),
                writing("Words", decided, told),
            ],
            truncation=truncation_of(len(piece), len(tokens), "first"),
        )

    def inputs(self, trained: Trained, count: int) -> list[str]:
        sources = (one.source for one in self.read(trained.recipe)["dev"])
        return list(islice((one for one in sources if one.strip()), count))


def read_pairs(where: ParallelFiles | Path, *, keep_blank: bool = False) -> list[Pair]:
    """Two files or one."""
    if isinstance(where, Path):
        return list(read_pairs_tsv(where, keep_blank=keep_blank).pairs)
    return list(read_parallel(where.source, where.target, keep_blank=keep_blank).pairs)


def longest(model: EncoderDecoderConfig) -> tuple[int, int]:
    """Tokens that a source and a target may have."""
    return model.longest_source, model.decoder.length


def encode_pairs(
    pairs: Sequence[Pair], vocabulary: Vocabulary, most_source: int, most_target: int
) -> RaggedPairs:
    """Tokens of both sides; pairs that do not fit the model are left out."""
    sources = vocabulary.encode([pair.source for pair in pairs])
    targets = vocabulary.encode([pair.target for pair in pairs])
    fits = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if 0 < len(source) <= most_source and len(target) < most_target
    ]
    if not fits:
        raise UserError(
            f"found no pair of at most {most_source} and {most_target} tokens, "
            "wanted some to learn from",
            fix="split long lines into sentences, or raise model.encoder.length and "
            "model.decoder.length",
        )
    warn_unfit(len(pairs) - len(fits), len(pairs), "pairs")
    return RaggedPairs(ragged([one for one, _ in fits]), ragged([one for _, one in fits]))


def smoothed_loss(model: nn.Module, batch: PairBatch, smoothing: float) -> Tensor:
    """Summed over the targets."""
    counted = batch.targets != IGNORE
    logits = model(batch.source, batch.present, batch.inputs, at=counted)
    return cross_entropy_(logits, batch.targets[counted], smoothing).sum()


def translate(
    model: EncoderDecoder,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    search: SearchConfig,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[Found]]:
    """The best hypotheses for each text; one that is too long is put together from its pieces."""
    keys = keys_of(texts, None) if keys is None else keys
    pieces: list[Numbers] = []
    owners: list[int] = []
    piece_keys: list[SampleKey] = []
    for number, (text, tokens) in enumerate(zip(texts, vocabulary.encode(texts), strict=True)):
        if not text.strip() or len(tokens) == 0:
            continue
        for place, piece in enumerate(cut_between_words(tokens, room_of(model), vocabulary)):
            pieces.append(piece)
            owners.append(number)
            piece_keys.append((*keys[number], place))
    joined: list[list[Found]] = [[] for _ in texts]
    found = search_pieces(model, pieces, search, piece_keys, nbest)
    for owner, hypotheses in zip(owners, found, strict=True):
        joined[owner] = follow(joined[owner], hypotheses) if joined[owner] else hypotheses
    return [hypotheses or [Found([], 0.0)] for hypotheses in joined]


def room_of(model: EncoderDecoder) -> int:
    """Tokens of a source that are read at once."""
    return model.longest_source or LONGEST_SOURCE


def longest_written(model: EncoderDecoder, search: SearchConfig) -> int:
    """Tokens of a translation, its end included where it comes."""
    return min(search.most or model.longest_output, model.longest_output)


def search_pieces(
    model: EncoderDecoder,
    pieces: Sequence[Numbers],
    search: SearchConfig,
    keys: Sequence[SampleKey],
    nbest: int = 1,
) -> list[list[Found]]:
    """The best hypotheses for each source that fits the model, in order."""
    found: list[list[Found]] = [[] for _ in pieces]
    device = next(model.parameters()).device
    # Of like length together, the longest first: what does not fit in memory fails at once.
    ranked = sorted(range(len(pieces)), key=lambda at: -len(pieces[at]))
    for start in range(0, len(ranked), TRANSLATED_TOGETHER):
        chosen = ranked[start : start + TRANSLATED_TOGETHER]
        source, present = pad(ragged([pieces[at] for at in chosen]), PAD)
        said = seek(
            WritingSteps(model, END),
            source.to(device),
            present.to(device),
            search=search,
            end=END,
            most=longest_written(model, search),
            nbest=nbest,
            keys=[keys[at] for at in chosen],
        )
        for at, one in zip(chosen, said, strict=True):
            found[at] = one
    return found


def cut_between_words(tokens: Numbers, room: int, vocabulary: Vocabulary) -> list[Numbers]:
    """Stretches of at most `room` tokens, each cut before a word where there is one."""
    pieces = []
    while len(tokens) > room:
        heads = [at for at in range(room // 2, room + 1) if vocabulary.begins_word(int(tokens[at]))]
        cut = heads[-1] if heads else room
        pieces.append(tokens[:cut])
        tokens = tokens[cut:]
    return [*pieces, tokens]
