"""The recipe of the task `transcribe`, and its data: frames of sound with their texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from harken.augment.specaugment import RandomEqualizerConfig, SpecAugmentConfig
from harken.augment.waveform import change_speed
from harken.batch.ragged import Numbers
from harken.batch.shards import FrameShards, write_frames
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.joint import SpeechSearchConfig
from harken.encode.filterbank import FilterbankConfig, frames_of
from harken.encode.subwords import CharactersConfig, TokenizerConfig
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.sound import MAX_SECONDS, UtteranceSignals, sound_rate, sound_seconds
from harken.models.recognizer import RecognizerConfig
from harken.tasks.task import SplitPaths, Splits, warn_unfit
from harken.training.loop import StageConfig
from harken.training.optimizer import AdamWConfig, MuonConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig

SAMPLED_SOUNDS = 200  # whose headers `harken new` reads
LONG_SECONDS = 2.0  # median length above which SpecAugment helps
SMALL_HOURS = 1.0  # of sound, below which a smaller model is enough
MAX_RATE = 16_000  # samples per second; speech has little above 8 kHz
CLOSED_WORDS = 100  # distinct words, up to which each word is a token


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeData(SplitPaths):
    """Manifests of sound and text; a share for `dev` is of the utterances."""

    max_seconds: float = bounded(MAX_SECONDS, above=0.0, at_most=1e5)  # longest segment, seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeEncoding:
    """Sound to frames, text to tokens."""

    filterbank: FilterbankConfig = FilterbankConfig(normalize="mean_and_variance")  # log-mel
    tokenizer: TokenizerConfig = field(default_factory=CharactersConfig)  # of transcripts


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeStage(StageConfig):
    """Training on utterances: augmentation and loss."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    # Optimizer and learning rate.
    optimizer: OptimizerConfig = MuonConfig(lr=0.01, fallback=AdamWConfig(lr=0.005))
    batch_frames: int = bounded(6000, at_least=1, at_most=MAX_BATCH)  # frames per batch
    ctc_weight: float = bounded(0.3, at_least=0.0, at_most=1.0)  # weight of CTC in the joint loss
    label_smoothing: float = bounded(0.1, at_least=0.0, below=1.0)  # of the decoder's targets
    speeds: tuple[float, ...] = bounded(
        (0.9, 1.0, 1.1), at_least=0.5, at_most=2.0
    )  # of perturbation
    random_equalizer: RandomEqualizerConfig = RandomEqualizerConfig()  # spectral augmentation
    spec_augment: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)  # SpecAugment

    def __post_init__(self) -> None:
        if not self.speeds:
            raise ValueError("speeds is empty; [1.0] leaves every sound unchanged")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeTraining:
    """The stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    speech: TranscribeStage = field(default_factory=TranscribeStage)  # the only stage


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeRecipe:
    """Recipe of the task `transcribe`."""

    task: Literal["transcribe"] = "transcribe"  # speech recognition
    seed: int = bounded(0, at_least=0, at_most=MAX_SEED)  # of weights, batches and the dev share
    data: TranscribeData  # paths of the manifests
    encode: TranscribeEncoding = field(default_factory=TranscribeEncoding)  # features, tokenizer
    model: RecognizerConfig = field(default_factory=RecognizerConfig)  # architecture
    training: TranscribeTraining = field(default_factory=TranscribeTraining)  # training stage
    search: SpeechSearchConfig = SpeechSearchConfig()  # beam search or sampling


def suggest_speech(recipe: TranscribeRecipe, splits: Splits[Utterance]) -> dict[str, object]:
    """Suggest sample rate, bands, tokens, model size and augmentation for the recordings."""
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
        "encode.filterbank.sample_rate": rate,
        "encode.filterbank.mel_bins": 80 if rate > 8000 else 40,
        # The mean of a short word is mostly its vowel.
        "encode.filterbank.normalize": "mean_and_variance" if is_long else "level",
        "encode.tokenizer.kind": "words" if is_closed else "characters",
    }
    if not is_long:
        augment = "training.speech.spec_augment"
        chosen |= {f"{augment}.time_masks": 0, f"{augment}.frequency_masks": 0}
    if sum(seconds) / len(seconds) * len(utterances) < SMALL_HOURS * 3600:
        chosen |= {"model.width": 64, "model.frontend.channels": 16, "model.encoder.layers": 3}
    return chosen


def utterance_key(utterance: Utterance) -> str:
    """Return a key of an utterance that depends neither on its folder nor on its text."""
    return f"{'/'.join(utterance.audio.parts[-2:])}#t={utterance.start}"


def stored_frames(
    recipe: TranscribeRecipe, utterances: Sequence[Utterance], folder: Path
) -> FrameShards:
    """Compute and store the frames of all utterances, once per speed."""
    sound = recipe.encode.filterbank
    if not folder.is_dir():
        sounds = UtteranceSignals(utterances, sound.sample_rate, recipe.data.max_seconds)
        changed = (
            change_speed(signal, sound.sample_rate, speed)
            for speed in recipe.training.speech.speeds
            for signal in sounds
        )
        frames = (sound_frames.numpy() for sound_frames in frames_of(changed, sound))
        write_frames(folder, frames, sound.mel_bins)
    return FrameShards(folder)


def fitting_utterances(
    recipe: TranscribeRecipe, lengths: Numbers, texts: Sequence[Numbers]
) -> Numbers:
    """Return the indices of utterances that are neither too long nor too short for the model."""
    model, limit = recipe.model, getattr(recipe.model.encoder, "max_length", None)
    states = -(-lengths // model.frontend.subsampling)
    fits = (lengths > 0) & (states <= (limit or np.inf))
    if model.ctc:  # a blank between equal tokens
        repeats = [int((text[1:] == text[:-1]).sum()) for text in texts]
        fits &= np.array(list(map(len, texts))) + repeats <= states
    if model.decoder is not None:
        fits &= np.array(list(map(len, texts))) < model.decoder.max_length
    if not fits.any():
        raise UserError(
            f"none of {len(texts)} training utterances fits the model",
            fix="set model.frontend.subsampling = 2 for fast speech, or raise "
            "model.encoder.max_length for long sounds",
        )
    warn_unfit(int((~fits).sum()), len(texts), "utterances")
    return np.flatnonzero(fits)
