"""Sound to text: a recogniser hears frames and writes symbols, by CTC, by attention or by both.

    sound --filterbank--> frames --front, body--> memory
    ctc          a symbol or nothing at every place of the memory; all alignments of a text count
    attention    <end> symbols  ->  symbols <end>        (what is told, what is wanted)
    both         loss = ctc_weight * ctc + (1 - ctc_weight) * attention

Frames are made once, at every speed that training hears, and kept in the run folder. A sound that
is longer than the model hears is cut where it is quietest; training leaves such sounds out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from harken.augment.conditions import apply, parse_condition
from harken.augment.equalizer import EqualiserConfig, equalise
from harken.augment.specaugment import SpecAugmentConfig, augment
from harken.augment.speed import change_speed
from harken.batch.bucketing import Order, seeded
from harken.batch.frames import FrameShards, write_frames
from harken.batch.padding import IGNORE
from harken.batch.ragged import Numbers, ragged
from harken.batch.utterances import UtteranceBatch, utterance_batch
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.speech import SpeechSearchConfig
from harken.encode.filterbank import FilterbankConfig, frames_of
from harken.encode.subwords import CharactersConfig, UnitsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.sound.audio import MOST_SECONDS
from harken.formats.speech.manifest import read_utterances
from harken.formats.speech.sounds import Signal, Sounds, name_of, signal_of
from harken.formats.split import hold_out
from harken.inspection.record import has_attention
from harken.layers.losses import cross_entropy_
from harken.measure.accuracy import exact_matches
from harken.measure.edit_distance import (
    Step,
    align_texts,
    by_speaker,
    count_edits,
    pairs_of,
    transcription_samples,
)
from harken.measure.interval import share
from harken.measure.tagging import confusions
from harken.measure.word_times import NOTES, looks_in_words, time_error
from harken.models.ctc import ctc_loss
from harken.models.recogniser import BLANK, Recogniser, RecogniserConfig
from harken.tasks.listening import Listener
from harken.tasks.task import (
    AttentionExample,
    Evaluation,
    Indices,
    Prediction,
    Table,
    Trained,
    keys_of,
    one_of,
    prediction_of,
    single,
    warn_unfit,
)
from harken.training.loop import Stage, StageConfig
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, MuonConfig, OptimiserConfig

DEV_UTTERANCES = 200  # heard greedily whenever training stops to evaluate
MOST_CONFUSIONS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeData:
    """Manifests of sound and text; a share for `dev` is of the utterances."""

    train: Path
    dev: Path | float = 0.1
    test: Path | None = None
    most_seconds: float = bounded(MOST_SECONDS, above=0.0, at_most=1e5)  # of one sound

    def __post_init__(self) -> None:
        if isinstance(self.dev, float) and not 0 < self.dev < 1:
            raise ValueError(f"dev = {self.dev} is no share; wanted a file or a number in (0, 1)")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeEncoding:
    """Sound to frames, text to symbols."""

    filterbank: FilterbankConfig = FilterbankConfig(normalise="mean_and_variance")
    units: UnitsConfig = field(default_factory=CharactersConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeStage(StageConfig):
    """How sound is changed while it is learnt from.

    One speed, an equaliser of strength 0 and no masks leave it as it is.
    """

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = MuonConfig(rate=0.01, rest=AdamWConfig(rate=0.005))
    batch_frames: int = bounded(6000, at_least=1, at_most=MAX_BATCH)
    ctc_weight: float = bounded(0.3, at_least=0.0, at_most=1.0)  # where there is a decoder too
    smoothing: float = bounded(0.1, at_least=0.0, below=1.0)  # of the decoder's targets
    speeds: tuple[float, ...] = bounded((0.9, 1.0, 1.1), at_least=0.5, at_most=2.0)
    equaliser: EqualiserConfig = EqualiserConfig()
    masks: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)

    def __post_init__(self) -> None:
        if not self.speeds:
            raise ValueError("speeds is empty; [1.0] hears every sound as it is")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeTraining:
    """One stage."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    speech: TranscribeStage = field(default_factory=TranscribeStage)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeRecipe:
    """The whole of a run."""

    task: Literal["transcribe"] = "transcribe"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: TranscribeData
    encode: TranscribeEncoding = field(default_factory=TranscribeEncoding)
    model: RecogniserConfig = field(default_factory=RecogniserConfig)
    training: TranscribeTraining = field(default_factory=TranscribeTraining)
    search: SpeechSearchConfig = SpeechSearchConfig()


class TranscribeTask:
    """See the top of this file."""

    files = "sounds"

    def read(self, recipe: TranscribeRecipe) -> Mapping[str, list[Utterance]]:
        data = recipe.data
        train = read_utterances(data.train)
        if isinstance(data.dev, float):
            kept, held = hold_out(train, data.dev, recipe.seed, key=identity)
            splits = {"train": kept, "dev": held}
        else:
            splits = {"train": train, "dev": read_utterances(data.dev)}
        if data.test is not None:
            splits["test"] = read_utterances(data.test)
        return splits

    def read_files(self, recipe: TranscribeRecipe, paths: Sequence[Path]) -> list[Utterance]:
        return read_utterances(single(paths, "utterances"))

    def fit(self, recipe: TranscribeRecipe, splits: Mapping[str, list[Utterance]]) -> Vocabulary:
        return recipe.encode.units.fit(one.text for one in splits["train"])

    def restore(self, path: Path) -> Vocabulary:
        return Vocabulary.load(path)

    def build(self, recipe: TranscribeRecipe, fitted: Vocabulary) -> Recogniser:
        sound = recipe.encode.filterbank
        return recipe.model.build(len(fitted), sound.bins, sound.hop_ms, recipe.seed)

    def stages(
        self,
        recipe: TranscribeRecipe,
        splits: Mapping[str, list[Utterance]],
        fitted: Vocabulary,
        cache: Path,
    ) -> list[Stage]:
        config = recipe.training.speech
        shards = made_frames(recipe, splits["train"], cache / "frames")
        texts = fitted.encode([one.text for one in splits["train"]])
        # A row for each speed, a column for each utterance.
        lengths = shards.lengths.reshape(len(config.speeds), len(texts)).max(axis=0)
        kept = fitting(recipe, lengths, texts)
        order = Order(lengths[kept], config.batch_frames, recipe.seed)

        def batch(step: int) -> list[UtteranceBatch]:
            random = seeded(recipe.seed, step)
            chosen = kept[order.batch(step)]
            speeds = random.integers(len(config.speeds), size=len(chosen))
            frames, present = shards.take(speeds * len(texts) + chosen)
            frames = equalise(frames, present, config.equaliser, random)
            frames = augment(frames, present, config.masks, random)
            said = ragged([texts[one] for one in chosen])
            return [utterance_batch(frames, present, said, END, END, PAD)]

        def loss(model: nn.Module, part: UtteranceBatch) -> Tensor:
            return weighted_loss(model, part, config)

        dev = splits["dev"][:DEV_UTTERANCES]

        def dev_words(model: nn.Module) -> float:
            greedy = replace(recipe, search=SpeechSearchConfig(by=recipe.search.by))
            trained = Trained(recipe=greedy, fitted=fitted, model=model)
            return 1.0 - self.evaluate(trained, dev).samples["wer"].value

        return [Stage(name="speech", config=config, batch=batch, loss=loss, evaluate=dev_words)]

    def evaluate(self, trained: Trained, examples: Sequence[Utterance]) -> Evaluation:
        return self._measure(trained, examples, sounds_of(trained.recipe, examples))

    def evaluate_under(
        self, trained: Trained, examples: Sequence[Utterance], condition: str
    ) -> Evaluation:
        """The same on sound, or against references, that a condition has changed."""
        recipe, chosen = trained.recipe, parse_condition(condition)
        rate = recipe.encode.filterbank.rate
        sounds, said = apply(chosen, sounds_of(recipe, examples), examples, rate, recipe.seed)
        return self._measure(trained, said, sounds)

    def predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int = 1, indices: Indices = None
    ) -> Iterator[Prediction]:
        """Inputs are names of sound files or of stretches of them; `-` is stdin."""
        return self._predict(trained, inputs, nbest, indices, times=False)

    def predict_times(
        self, trained: Trained, inputs: Sequence[str], indices: Indices = None
    ) -> Iterator[Prediction]:
        """The same, with the seconds of every word."""
        return self._predict(trained, inputs, 1, indices, times=True)

    def _predict(
        self, trained: Trained, inputs: Sequence[str], nbest: int, indices: Indices, *, times: bool
    ) -> Iterator[Prediction]:
        recipe = trained.recipe
        sound, longest = recipe.encode.filterbank, recipe.data.most_seconds
        frames = frames_of((signal_of(name, sound.rate, longest) for name in inputs), sound)
        keys = keys_of(inputs, indices)
        found = listener_of(trained).transcribe(frames, keys, nbest, times=times)
        for name, one in zip(inputs, found, strict=True):
            yield replace(
                prediction_of(name, one.found, trained.fitted, nbest), words=tuple(one.words)
            )

    def _measure(
        self, trained: Trained, examples: Sequence[Utterance], signals: Sequence[Signal]
    ) -> Evaluation:
        listener, expected = listener_of(trained), [one.text for one in examples]
        frames = frames_of(signals, listener.filterbank)
        timed = any(one.words for one in examples)
        found = list(listener.transcribe(frames, keys_of(expected, None), times=timed))
        predictions = [
            prediction_of(name_of(one), transcript.found, trained.fitted, 1)
            for one, transcript in zip(examples, found, strict=True)
        ]
        outputs = [one.output for one in predictions]
        samples, notes = transcription_samples(outputs, expected)
        words = align_texts(outputs, expected, units="words")
        if timed:
            said = [one.words for one in examples]
            samples["word_time_error"] = time_error(said, [one.words for one in found], words)
            if "attention" in listener.model.ways:
                looks = [one.looks for one in found]
                samples["attention_in_word"] = looks_in_words(said, looks, words)
        return Evaluation(
            n=len(examples),
            samples={**samples, "exact_match": share(exact_matches(outputs, expected))},
            notes={**notes, **{name: note for name, note in NOTES.items() if name in samples}},
            predictions=predictions,
            expected=expected,
            tables=tables_of([one.speaker for one in examples], words),
        )

    def glimpse(self, trained: Trained, evaluation: Evaluation) -> AttentionExample | None:
        pairs = list(zip(evaluation.predictions, evaluation.expected, strict=True))
        said = [(one, text) for one, text in pairs if one.output] or pairs
        if not said:
            return None
        right = exact_matches([one.output for one, _ in said], [text for _, text in said])
        return self.look(trained, said[one_of(right)][0].input)

    def look(self, trained: Trained, asked: str) -> AttentionExample | None:
        """One sound, cut to what the model hears at once."""
        if not has_attention(trained.model):
            return None
        listener, recipe = listener_of(trained), trained.recipe
        sound, longest = recipe.encode.filterbank, recipe.data.most_seconds
        (frames,) = frames_of([signal_of(asked, sound.rate, longest)], sound)
        return listener.glimpse(frames, asked)

    def inputs(self, trained: Trained, count: int) -> list[str]:
        return [name_of(one) for one in self.read(trained.recipe)["dev"][:count]]


def identity(one: Utterance) -> str:
    """What makes an utterance itself wherever its folder is, whatever is said in it."""
    return f"{'/'.join(one.audio.parts[-2:])}#t={one.start}"


def sounds_of(recipe: TranscribeRecipe, utterances: Sequence[Utterance]) -> Sounds:
    """The sound of each, at the rate of the recipe."""
    return Sounds(utterances, recipe.encode.filterbank.rate, recipe.data.most_seconds)


def listener_of(trained: Trained) -> Listener:
    """The model with the rest of its recipe around it."""
    recipe = trained.recipe
    return Listener(
        model=cast(Recogniser, trained.model),
        vocabulary=trained.fitted,
        filterbank=recipe.encode.filterbank,
        search=recipe.search,
    )


def made_frames(
    recipe: TranscribeRecipe, utterances: Sequence[Utterance], folder: Path
) -> FrameShards:
    """Frames of every utterance at the first speed, then of every one at the next, …"""
    sound, sounds = recipe.encode.filterbank, sounds_of(recipe, utterances)
    if not folder.is_dir():
        changed = (
            change_speed(signal, sound.rate, speed)
            for speed in recipe.training.speech.speeds
            for signal in sounds
        )
        write_frames(folder, (one.numpy() for one in frames_of(changed, sound)), sound.bins)
    return FrameShards(folder)


def fitting(recipe: TranscribeRecipe, lengths: Numbers, texts: Sequence[Numbers]) -> Numbers:
    """The utterances that the model can learn from: not too long for it, not too short to say."""
    model = recipe.model
    longest, stride = getattr(model.encoder, "length", None), model.front.factor
    places = -(-lengths // stride)
    needed = np.array([len(text) + int((text[1:] == text[:-1]).sum()) for text in texts])
    fine = (lengths > 0) & (places <= (longest or np.inf))
    if model.ctc:
        fine &= needed <= places
    if model.decoder is not None:
        fine &= np.array([len(text) for text in texts]) < model.decoder.length
    if not fine.any():
        raise UserError(
            f"found no utterance among {len(texts)} that fits the model, wanted some to learn from",
            fix="set model.front.factor = 2 where much is said in little time, or raise "
            "model.encoder.length for long sounds",
        )
    warn_unfit(int((~fine).sum()), len(texts), "utterances")
    return np.flatnonzero(fine)


def weighted_loss(model: nn.Module, batch: UtteranceBatch, config: TranscribeStage) -> Tensor:
    """Summed over what is said; one way of writing has all the weight where it is alone."""
    counted = batch.targets != IGNORE
    ctc_logits, present, decoder_logits = model(
        batch.frames, batch.present, batch.inputs, at=counted
    )
    losses = []
    if ctc_logits is not None:
        weight = config.ctc_weight if decoder_logits is not None else 1.0
        said = counted & (batch.targets != END)
        losses.append(weight * ctc_loss(ctc_logits, present, batch.targets, said, blank=BLANK))
    if decoder_logits is not None:
        weight = 1.0 - config.ctc_weight if ctc_logits is not None else 1.0
        nats = cross_entropy_(decoder_logits, batch.targets[counted], config.smoothing)
        losses.append(weight * nats.sum())
    return torch.stack(losses).sum()


def tables_of(speakers: Sequence[str], sentences: Sequence[Sequence[Step]]) -> list[Table]:
    """Who was understood, and what was taken for what."""
    edits = [count_edits(steps) for steps in sentences]
    tables = []
    if len(set(speakers)) > 1:
        understood = [
            (name or "unknown", one.said, f"{100 * one.rate:.1f} %", *one[1:])
            for name, one in by_speaker(speakers, edits).items()
        ]
        header = ("speaker", "words", "errors", "substituted", "deleted", "inserted")
        tables.append(Table(title="Who was understood", header=header, rows=understood))
    wrong = confusions(pairs_of(sentences), MOST_CONFUSIONS)
    if wrong:
        tables.append(
            Table(
                title="What was taken for what",
                header=("said", "written", "times"),
                rows=[(one.expected or "–", one.said or "–", one.words) for one in wrong],
            )
        )
    return tables
