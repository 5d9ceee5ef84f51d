"""Speech recognition: frames of sound to text, by CTC, by attention or by both.

    sound --filterbank--> frames --front, encoder--> encoder states
    ctc          a token or nothing at every encoder state; all alignments of a text count
    attention    <end> tokens  ->  tokens <end>        (decoder inputs, targets)
    both         loss = ctc_weight * ctc + (1 - ctc_weight) * attention

Frames are computed once, at every speed of the augmentation, and kept in the run folder. A sound
that is longer than the model reads is cut where it is quietest; training leaves such sounds out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harken.augment.equalizer import EqualiserConfig, equalise
from harken.augment.specaugment import SpecAugmentConfig, augment
from harken.augment.speed import change_speed
from harken.batch.bucketing import Order, seeded
from harken.batch.frames import FrameShards, write_frames
from harken.batch.padding import IGNORE
from harken.batch.ragged import Numbers, ragged
from harken.batch.utterances import UtteranceBatch, utterance_batch
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.joint import SpeechSearchConfig
from harken.encode.filterbank import FilterbankConfig, frames_of
from harken.encode.subwords import CharactersConfig, UnitsConfig
from harken.encode.vocabulary import END, PAD, Vocabulary, VocabularySizes
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.manifest import read_utterances
from harken.formats.sound import MAX_SECONDS, Sounds, name_of, sound_rate, sound_seconds
from harken.layers.losses import cross_entropy_
from harken.models.ctc import ctc_loss
from harken.models.recognizer import BLANK, RecognizerConfig, SpeechRecognizer
from harken.tasks.prediction import warn_unfit
from harken.tasks.task import (
    Layout,
    ProbeSizes,
    SplitPaths,
    Splits,
    Task,
    file_calls,
    random_tokens,
    require_one_file,
)
from harken.tasks.transcribe_predictor import SpeechPredictor
from harken.training.loop import MicroBatch, Stage, StageConfig, micro_batch, stage
from harken.training.machine import MachineConfig
from harken.training.optimiser import AdamWConfig, MuonConfig, OptimiserConfig

DEV_UTTERANCES = 200  # transcribed greedily at each evaluation during training
PROBE_FRAMES, FRAMES_PER_TOKEN = 400, 16  # four seconds, one frame every 10 ms
SAMPLED_SOUNDS = 200  # whose headers `harken new` reads
LONG_SECONDS = 2.0  # median from which on SpecAugment helps
SMALL_HOURS = 1.0  # of sound, for which a smaller model is enough
MAX_RATE = 16_000  # samples per second; speech has little above 8 kHz
CLOSED_WORDS = 100  # distinct words that can each be a token
TEMPLATE = """
[encode.filterbank]
rate = {encode.filterbank.rate}    # samples per second, as most files have; others are resampled
bins = {encode.filterbank.bins}    # mel bands; 40 are enough for a rate of 8000
normalise = "{encode.filterbank.normalise}"    # "level" for short words

[encode.units]
kind = "{encode.units.kind}"    # "words" for a closed vocabulary; or "characters", "bpe", "unigram"

[model]
encoder.kind = "{model.encoder.kind}"    # or "transformer", or
# "lstm", "gru", "tanh" with encoder.direction = "both"
encoder.layers = {model.encoder.layers}
width = {model.width}
front.channels = {model.front.channels}
# decoder.kind = "transformer"    # or "rnn": write by attention too, or alone with ctc = false

[training.speech]
steps = {training.speech.steps}
batch_frames = {training.speech.batch_frames}    # frames of one step
evaluate_every = {training.speech.evaluate_every}    # steps; the best on dev is kept; 0: the last
speeds = [0.9, 1.0, 1.1]    # speed perturbation; [1.0] for none
masks.time_masks = {training.speech.masks.time_masks}    # SpecAugment, for sounds of 2 s or more
masks.frequency_masks = {training.speech.masks.frequency_masks}

[search]
beam = {search.beam}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeData(SplitPaths):
    """Manifests of sound and text; a share for `dev` is of the utterances."""

    most_seconds: float = bounded(MAX_SECONDS, above=0.0, at_most=1e5)  # of one sound


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeEncoding:
    """Sound to frames, text to tokens."""

    filterbank: FilterbankConfig = FilterbankConfig(normalise="mean_and_variance")
    units: UnitsConfig = field(default_factory=CharactersConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeStage(StageConfig):
    """Augmentation and loss.

    One speed, an equalizer of strength 0 and no masks leave the sound unchanged.
    """

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)
    optimiser: OptimiserConfig = MuonConfig(rate=0.01, rest=AdamWConfig(rate=0.005))
    batch_frames: int = bounded(6000, at_least=1, at_most=MAX_BATCH)
    ctc_weight: float = bounded(0.3, at_least=0.0, at_most=1.0)  # if there is a decoder too
    smoothing: float = bounded(0.1, at_least=0.0, below=1.0)  # of the decoder's targets
    speeds: tuple[float, ...] = bounded((0.9, 1.0, 1.1), at_least=0.5, at_most=2.0)
    equaliser: EqualiserConfig = EqualiserConfig()
    masks: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)

    def __post_init__(self) -> None:
        if not self.speeds:
            raise ValueError("speeds is empty; [1.0] leaves every sound unchanged")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeTraining:
    """One stage."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    speech: TranscribeStage = field(default_factory=TranscribeStage)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeRecipe:
    """The recipe of a run."""

    task: Literal["transcribe"] = "transcribe"
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)
    data: TranscribeData
    encode: TranscribeEncoding = field(default_factory=TranscribeEncoding)
    model: RecognizerConfig = field(default_factory=RecognizerConfig)
    training: TranscribeTraining = field(default_factory=TranscribeTraining)
    search: SpeechSearchConfig = SpeechSearchConfig()


def suggest_speech(recipe: TranscribeRecipe, splits: Splits[Utterance]) -> dict[str, object]:
    """Sampling rate, bands, tokens, size and augmentation that suit the recordings."""
    utterances = splits["train"]
    sample = utterances[:: -(-len(utterances) // SAMPLED_SOUNDS)]
    rates = Counter(sound_rate(utterance.audio) for utterance in sample)
    rate = min(rates.most_common(1)[0][0], MAX_RATE)
    seconds = [
        (sound_seconds(utterance.audio) if utterance.end is None else utterance.end)
        - utterance.start
        for utterance in sample
    ]
    is_long = median(seconds) > LONG_SECONDS
    words = Counter(word for utterance in utterances for word in utterance.text.split())
    is_closed = len(words) <= CLOSED_WORDS and words.total() >= 10 * len(words)
    chosen: dict[str, object] = {
        "encode.filterbank.rate": rate,
        "encode.filterbank.bins": 80 if rate > 8000 else 40,
        # The mean of a short word is mostly its vowel.
        "encode.filterbank.normalise": "mean_and_variance" if is_long else "level",
        "encode.units.kind": "words" if is_closed else "characters",
    }
    if not is_long:
        chosen |= {
            "training.speech.masks.time_masks": 0,
            "training.speech.masks.frequency_masks": 0,
        }
    if sum(seconds) / len(seconds) * len(utterances) < SMALL_HOURS * 3600:
        chosen |= {"model.width": 64, "model.front.channels": 16, "model.encoder.layers": 3}
    return chosen


class TranscribeTask(Task[TranscribeRecipe, Utterance, Vocabulary, SpeechRecognizer]):
    """Speech recognition."""

    inputs = "sounds"
    recipe_type = TranscribeRecipe
    vocabulary_type = Vocabulary
    layout = Layout[TranscribeRecipe, Utterance](
        calls=file_calls("train.jsonl", "train.jsonl", "dev.jsonl", "test.jsonl"),
        template=TEMPLATE,
        examples="utterances",
        stage="training.speech",
        suggest=suggest_speech,
    )

    def read(self, recipe: TranscribeRecipe, paths: Sequence[Path]) -> list[Utterance]:
        return read_utterances(require_one_file(paths, "utterances"))

    def read_splits(self, recipe: TranscribeRecipe) -> Splits[Utterance]:
        return Splits(recipe.data, read_utterances, seed=recipe.seed, key=identity)

    def input(self, example: Utterance) -> str:
        return name_of(example)

    def target(self, example: Utterance) -> str:
        return example.text

    def fit(self, recipe: TranscribeRecipe, train: Sequence[Utterance]) -> Vocabulary:
        return recipe.encode.units.fit(utterance.text for utterance in train)

    def build(self, recipe: TranscribeRecipe, sizes: VocabularySizes) -> SpeechRecognizer:
        sound = recipe.encode.filterbank
        return recipe.model.build(sizes.entries, sound.bins, sound.hop_ms, recipe.seed)

    def stages(
        self,
        recipe: TranscribeRecipe,
        splits: Splits[Utterance],
        vocabulary: Vocabulary,
        cache: Path,
    ) -> list[Stage[SpeechRecognizer]]:
        config = recipe.training.speech
        shards = stored_frames(recipe, splits["train"], cache / "frames")
        texts = vocabulary.encode([utterance.text for utterance in splits["train"]])
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
            targets = ragged([texts[index] for index in chosen])
            return [utterance_batch(frames, present, targets, END, END, PAD)]

        dev = splits["dev"][:DEV_UTTERANCES]
        greedy = replace(recipe, search=SpeechSearchConfig(by=recipe.search.by))

        def dev_accuracy(model: SpeechRecognizer) -> float:
            predictor = self.bind(greedy, splits, vocabulary, model)
            return 1.0 - predictor.evaluate(dev).samples["wer"].value

        return [stage("speech", config, batch, speech_loss(config), dev_accuracy)]

    def bind(
        self,
        recipe: TranscribeRecipe,
        splits: Splits[Utterance],
        vocabulary: Vocabulary,
        model: SpeechRecognizer,
    ) -> SpeechPredictor:
        return SpeechPredictor(
            model=model,
            vocabulary=vocabulary,
            filterbank=recipe.encode.filterbank,
            search=recipe.search,
            max_seconds=recipe.data.most_seconds,
            seed=recipe.seed,
        )

    def probe_sizes(
        self, recipe: TranscribeRecipe, rows: int | None, length: int | None
    ) -> ProbeSizes:
        config, frames = recipe.training.speech, length or PROBE_FRAMES
        assumed = [] if length else [f"a length of {frames} (--length)"]
        letters = {
            "B": rows or max(1, config.batch_frames // frames),
            "S": frames,
            "T": max(1, frames // FRAMES_PER_TOKEN),
            "F": recipe.encode.filterbank.bins,
        }
        assumed.append(f"one symbol per {FRAMES_PER_TOKEN} frames")
        return ProbeSizes(config, letters, tuple(assumed))

    def probe(
        self, recipe: TranscribeRecipe, vocabulary: VocabularySizes, letters: Mapping[str, int]
    ) -> MicroBatch[SpeechRecognizer]:
        generator, rows = torch.Generator().manual_seed(0), letters["B"]
        frames = torch.randn(rows, letters["S"], letters["F"], generator=generator)
        present = torch.ones(rows, letters["S"], dtype=torch.bool)
        inputs, targets = (
            random_tokens(generator, vocabulary.entries, rows, letters["T"]) for _ in range(2)
        )
        batch = UtteranceBatch(frames, present, inputs, targets)
        return micro_batch(batch, speech_loss(recipe.training.speech))


def identity(utterance: Utterance) -> str:
    """A key of an utterance that depends neither on its folder nor on its text."""
    return f"{'/'.join(utterance.audio.parts[-2:])}#t={utterance.start}"


def stored_frames(
    recipe: TranscribeRecipe, utterances: Sequence[Utterance], folder: Path
) -> FrameShards:
    """Frames of every utterance at the first speed, then of every one at the next, …"""
    sound = recipe.encode.filterbank
    if not folder.is_dir():
        sounds = Sounds(utterances, sound.rate, recipe.data.most_seconds)
        changed = (
            change_speed(signal, sound.rate, speed)
            for speed in recipe.training.speech.speeds
            for signal in sounds
        )
        write_frames(folder, (frames.numpy() for frames in frames_of(changed, sound)), sound.bins)
    return FrameShards(folder)


def fitting(recipe: TranscribeRecipe, lengths: Numbers, texts: Sequence[Numbers]) -> Numbers:
    """The utterances that the model can learn from: neither too long nor too short."""
    model = recipe.model
    longest, stride = getattr(model.encoder, "length", None), model.front.factor
    places = -(-lengths // stride)
    needed = np.array([len(text) + int((text[1:] == text[:-1]).sum()) for text in texts])
    fits = (lengths > 0) & (places <= (longest or np.inf))
    if model.ctc:
        fits &= needed <= places
    if model.decoder is not None:
        fits &= np.array([len(text) for text in texts]) < model.decoder.length
    if not fits.any():
        raise UserError(
            f"found no utterance among {len(texts)} that fits the model, wanted some to learn from",
            fix="set model.front.factor = 2 where much is said in little time, or raise "
            "model.encoder.length for long sounds",
        )
    warn_unfit(int((~fits).sum()), len(texts), "utterances")
    return np.flatnonzero(fits)


def speech_loss(config: TranscribeStage) -> Callable[[SpeechRecognizer, UtteranceBatch], Tensor]:
    """CTC and cross-entropy, summed over the targets; one of them alone has weight 1."""

    def loss(model: SpeechRecognizer, batch: UtteranceBatch) -> Tensor:
        counted = batch.targets != IGNORE
        ctc_logits, present, decoder_logits = model(
            batch.frames, batch.present, batch.inputs, at=counted
        )
        losses = []
        if ctc_logits is not None:
            weight = config.ctc_weight if decoder_logits is not None else 1.0
            tokens = counted & (batch.targets != END)
            ctc = ctc_loss(ctc_logits, present, batch.targets, tokens, blank=BLANK)
            losses.append(weight * ctc)
        if decoder_logits is not None:
            weight = 1.0 - config.ctc_weight if ctc_logits is not None else 1.0
            nats = cross_entropy_(decoder_logits, batch.targets[counted], config.smoothing)
            losses.append(weight * nats.sum())
        return torch.stack(losses).sum()

    return loss
