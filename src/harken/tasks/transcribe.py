"""Speech recognition with CTC, with an attention decoder, or with both.

    sound --filterbank--> frames --front end, encoder--> encoder states
    ctc          a token or blank at each encoder state
    attention    <end> tokens  ->  tokens <end>        (decoder inputs, targets)
    both         loss = ctc_weight * ctc + (1 - ctc_weight) * attention

Frames are computed once for each speed and stored in the run folder. A sound that is longer than
the model's limit is cut where it is quietest; training leaves such sounds out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor

from harken.augment.specaugment import equalize, spec_augment
from harken.batch.bucketing import BucketSampler, rng
from harken.batch.padding import IGNORE_INDEX, Seq2SeqBatch, shift_targets
from harken.batch.ragged import IntArray, ragged
from harken.decode.joint import SpeechSearchConfig
from harken.encode.pretrained import PretrainedTokenizer
from harken.encode.vocabulary import END, Vocabulary, VocabularySizes
from harken.encode.whisper_filterbank import WhisperFilterbankConfig
from harken.encode.whisper_tokenizer import WhisperTokenizerConfig, whisper_vocabulary
from harken.errors import UserError
from harken.formats.examples import Utterance
from harken.formats.manifest import read_utterances
from harken.formats.sound import UtteranceSignals, segment_name, sound_rate, sound_seconds
from harken.layers.losses import cross_entropy_
from harken.models.ctc import ctc_loss
from harken.models.recognizer import BLANK, PretrainedRecognizerConfig, SpeechRecognizer
from harken.tasks.dummy_batches import DummySizes, random_seq2seq_batch
from harken.tasks.stored_inputs import stored_frames
from harken.tasks.task import InputForm, Layout, Splits, Task, file_calls, warn_unfit
from harken.tasks.transcribe_predictor import SpeechPredictor, TranscribeRecipe, TranscribeStage
from harken.training.loop import MicroBatch, Stage, micro_batch, stage

DEV_UTTERANCES = 200  # transcribed greedily at each evaluation during training
DUMMY_FRAMES, FRAMES_PER_TOKEN = 400, 16  # 4 s, one frame every 10 ms
SAMPLED_SOUNDS = 200  # sounds of which `harken new` reads the headers
LONG_SECONDS = 2.0  # median length above which SpecAugment helps
SMALL_HOURS = 1.0  # hours of sound below which a smaller model is enough
MAX_RATE = 16_000  # samples per second; speech has little above 8 kHz
MAX_WORD_TOKENS = 100  # `harken new` makes each word a token for at most this many words
TEMPLATE = """
[encode.filterbank]
sample_rate = {encode.filterbank.sample_rate}    # Hz; files at other rates are resampled
mel_bins = {encode.filterbank.mel_bins}    # 40 are enough for 8000 Hz
normalize = "{encode.filterbank.normalize}"    # "level" for short words

[encode.tokenizer]
kind = "{encode.tokenizer.kind}"    # "words" if there are few; or "characters", "bpe", "unigram"

[model]
encoder.kind = "{model.encoder.kind}"    # or "transformer", or
# "lstm", "gru", "tanh" with encoder.direction = "both"
encoder.layers = {model.encoder.layers}
width = {model.width}
frontend.channels = {model.frontend.channels}
# decoder.kind = "transformer"    # or "rnn": adds an attention decoder; ctc = false removes CTC

[training.speech]
steps = {training.speech.steps}
batch_frames = {training.speech.batch_frames}    # frames per batch
evaluate_every = {training.speech.evaluate_every}    # steps; keeps the best weights; 0: never
speeds = [0.9, 1.0, 1.1]    # speed perturbation; [1.0] for none
spec_augment.time_masks = {training.speech.spec_augment.time_masks}    # SpecAugment
spec_augment.frequency_masks = {training.speech.spec_augment.frequency_masks}

[search]
beam = {search.beam}
"""


def suggest_speech(recipe: TranscribeRecipe, splits: Splits[Utterance]) -> dict[str, object]:
    """Suggest sample rate, mel bins, tokenizer, model size and augmentation."""
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
    # Few words, which occur 10 times or more on average.
    is_small_vocabulary = len(words) <= MAX_WORD_TOKENS and words.total() >= 10 * len(words)
    overrides: dict[str, object] = {
        "encode.filterbank.sample_rate": rate,
        "encode.filterbank.mel_bins": 80 if rate > 8000 else 40,
        # A short word is mostly a vowel, which subtracting the mean would remove.
        "encode.filterbank.normalize": "mean_and_variance" if is_long else "level",
        "encode.tokenizer.kind": "words" if is_small_vocabulary else "characters",
    }
    if not is_long:
        augment = "training.speech.spec_augment"
        overrides |= {f"{augment}.time_masks": 0, f"{augment}.frequency_masks": 0}
    if sum(seconds) / len(seconds) * len(utterances) < SMALL_HOURS * 3600:
        overrides |= {"model.width": 64, "model.frontend.channels": 16, "model.encoder.layers": 3}
    return overrides


def utterance_key(utterance: Utterance) -> str:
    """Return folder, file name and start. A share `data.dev` is held out by a hash of this key."""
    return f"{'/'.join(utterance.audio.parts[-2:])}#t={utterance.start}"


def fitting_utterances(
    recipe: TranscribeRecipe, lengths: IntArray, texts: Sequence[IntArray], start: int = 1
) -> IntArray:
    """Return the indices of utterances that are neither too long nor too short for the model.

    The decoder has `start` inputs before the text.
    """
    model, limit = recipe.model, getattr(recipe.model.encoder, "max_length", None)
    states = -(-lengths // model.frontend.subsampling)
    fits = (lengths > 0) & (states <= (limit or np.inf))
    tokens = np.array(list(map(len, texts)))
    if model.ctc:  # which needs a blank between equal tokens
        fits &= tokens + [int((text[1:] == text[:-1]).sum()) for text in texts] <= states
    if model.decoder is not None:
        fits &= tokens + start <= model.decoder.max_length
    if not fits.any():
        raise UserError(
            f"none of {len(texts)} training utterances fits the model",
            fix="set model.frontend.subsampling = 2 for fast speech, or raise "
            "model.encoder.max_length for long sounds or model.decoder.max_length for long texts",
        )
    warn_unfit(int((~fits).sum()), len(texts), "utterances")
    return np.flatnonzero(fits)


class TranscribeTask(Task[TranscribeRecipe, Utterance, Vocabulary, SpeechRecognizer]):
    """Speech recognition."""

    recognizes_speech = True
    recipe_type = TranscribeRecipe
    vocabulary_type = Vocabulary
    predictor_type = SpeechPredictor
    layout = Layout[TranscribeRecipe, Utterance](
        calls=file_calls("train.jsonl", "train.jsonl", "dev.jsonl", "test.jsonl"),
        template=TEMPLATE,
        examples="utterances",
        stage="training.speech",
        suggest=suggest_speech,
    )

    def inputs(self, recipe: TranscribeRecipe) -> InputForm:
        return "sounds"

    def read_file(self, recipe: TranscribeRecipe, path: Path) -> list[Utterance]:
        return read_utterances(path)

    def read_splits(self, recipe: TranscribeRecipe) -> Splits[Utterance]:
        return Splits(recipe.data, read_utterances, seed=recipe.seed, key=utterance_key)

    def input(self, example: Utterance) -> str:
        return segment_name(example)

    def target(self, example: Utterance) -> str:
        return example.text

    def fit(self, recipe: TranscribeRecipe, train: Sequence[Utterance]) -> Vocabulary:
        return recipe.encode.tokenizer.fit(utterance.text for utterance in train)

    def fit_pretrained(
        self,
        recipe: TranscribeRecipe,
        train: Sequence[Utterance],
        tokenizer: PretrainedTokenizer,
    ) -> Vocabulary:
        config = recipe.encode.tokenizer
        assert isinstance(config, WhisperTokenizerConfig), "`pretrained_keys` determines it"
        texts = [utterance.text for utterance in train]
        return whisper_vocabulary(tokenizer, config.language, texts)

    def pretrained_keys(self, model: object) -> Mapping[str, object]:
        features = model.features if isinstance(model, PretrainedRecognizerConfig) else 0
        filterbank = {"kind": WhisperFilterbankConfig().kind, "mel_bins": features}
        tokenizer = {"kind": WhisperTokenizerConfig().kind}
        return {"encode": {"filterbank": filterbank, "tokenizer": tokenizer}}

    def start_keys(self, model: object) -> Mapping[str, object] | None:
        if isinstance(model, PretrainedRecognizerConfig):
            return super().start_keys(model.recognizer)
        return super().start_keys(model)

    def build(self, recipe: TranscribeRecipe, sizes: VocabularySizes) -> SpeechRecognizer:
        filterbank, entries = recipe.encode.filterbank, sizes.entries
        return recipe.model.build(entries, filterbank.mel_bins, filterbank.hop_ms, recipe.seed)

    def stages(
        self,
        recipe: TranscribeRecipe,
        splits: Splits[Utterance],
        vocabulary: Vocabulary,
        cache: Path,
    ) -> list[Stage[SpeechRecognizer]]:
        config = recipe.training.speech
        rate, limit = recipe.encode.filterbank.sample_rate, recipe.data.max_seconds
        shards = stored_frames(
            lambda: UtteranceSignals(splits["train"], rate, limit),
            recipe.encode.filterbank,
            config.speeds,
            cache / "frames",
        )
        texts = vocabulary.encode([utterance.text for utterance in splits["train"]])
        lengths = shards.lengths.reshape(len(config.speeds), len(texts)).max(axis=0)
        special, start = vocabulary.special, vocabulary.decoder.start
        fitting = fitting_utterances(recipe, lengths, texts, len(start))
        sizes = np.maximum(lengths[fitting], recipe.model.frontend.min_frames)
        sampler = BucketSampler(sizes, config.batch_frames, recipe.seed)

        def batch(step: int) -> list[Seq2SeqBatch]:
            generator = rng(recipe.seed, step)
            chosen = fitting[sampler.batch(step)]
            speeds = generator.integers(len(config.speeds), size=len(chosen))
            frames, present = shards.take(speeds * len(texts) + chosen)  # as `stored_frames` orders
            frames = equalize(frames, present, config.random_equalizer, generator)
            frames = spec_augment(frames, present, config.spec_augment, generator)
            tokens = ragged([texts[index] for index in chosen])
            targets = shift_targets(tokens, start, special.end, special.pad)
            return [Seq2SeqBatch(frames, present, *targets)]

        dev = splits["dev"][:DEV_UTTERANCES]
        greedy = replace(recipe, search=SpeechSearchConfig(mode=recipe.search.mode))

        def dev_accuracy(model: SpeechRecognizer) -> float:
            predictor = SpeechPredictor(greedy, splits, vocabulary, model)
            return 1.0 - predictor.evaluate(dev).samples["wer"].value

        return [stage("speech", config, batch, speech_loss(config), dev_accuracy)]

    def dummy_sizes(
        self, recipe: TranscribeRecipe, rows: int | None, length: int | None
    ) -> DummySizes:
        config, frames = recipe.training.speech, length or DUMMY_FRAMES
        sizes = {
            "B": rows or max(1, config.batch_frames // frames),
            "S": frames,
            "T": max(1, frames // FRAMES_PER_TOKEN),
            "F": recipe.encode.filterbank.mel_bins,
        }
        assumed = () if length else (f"a length of {frames} (--length)",)
        return DummySizes(config, sizes, (*assumed, f"one token per {FRAMES_PER_TOKEN} frames"))

    def dummy_batch(
        self, recipe: TranscribeRecipe, vocabulary: VocabularySizes, sizes: Mapping[str, int]
    ) -> MicroBatch[SpeechRecognizer]:
        generator = torch.Generator().manual_seed(0)
        frames = torch.randn(sizes["B"], sizes["S"], sizes["F"], generator=generator)
        batch = random_seq2seq_batch(frames, sizes["T"], vocabulary.entries, generator)
        return micro_batch(batch, speech_loss(recipe.training.speech))


def speech_loss(config: TranscribeStage) -> Callable[[SpeechRecognizer, Seq2SeqBatch], Tensor]:
    """Return a function for the summed CTC and attention losses; one alone has weight 1."""

    def loss(model: SpeechRecognizer, batch: Seq2SeqBatch) -> Tensor:
        *inputs, targets = batch
        counted = targets != IGNORE_INDEX
        ctc_logits, present, decoder_logits = model(*inputs, at=counted)
        losses = []
        if ctc_logits is not None:
            weight = config.ctc_weight if decoder_logits is not None else 1.0
            tokens = counted & (targets != END)
            losses.append(weight * ctc_loss(ctc_logits, present, targets, tokens, blank=BLANK))
        if decoder_logits is not None:
            weight = 1.0 - config.ctc_weight if ctc_logits is not None else 1.0
            nats = cross_entropy_(decoder_logits, targets[counted], config.label_smoothing)
            losses.append(weight * nats.sum())
        return torch.stack(losses).sum()

    return loss
