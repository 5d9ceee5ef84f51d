"""The recipe of the task `transcribe`, and the predictor of transcripts and word times.

A sound that is longer than the model's limit is cut where it is quietest, and the transcripts of
its chunks are joined.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from harken.augment.conditions import apply_condition, parse_condition
from harken.augment.specaugment import RandomEqualizerConfig, SpecAugmentConfig
from harken.config import MAX_BATCH, MAX_SEED, MAX_STEPS, bounded
from harken.decode.alignment import align, find_peaks, spans_around, word_spans
from harken.decode.ctc import Span
from harken.decode.joint import SpeechSearchConfig, decoding_mode, search_speech
from harken.decode.sampling import SampleKey
from harken.encode.filterbank import FeaturesConfig, FilterbankConfig, frames_of
from harken.encode.subwords import CharactersConfig, TokenizerConfig
from harken.encode.vocabulary import Vocabulary
from harken.encode.whisper_filterbank import WhisperFilterbankConfig
from harken.encode.whisper_tokenizer import WhisperTokenizerConfig
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.sound import MAX_SECONDS, Signal, UtteranceSignals, load_signal, segment_name
from harken.inspection.record import has_multihead
from harken.inspection.refs import is_encoder_attention
from harken.inspection.search_attention import forced_cross_attention
from harken.layers.inference import optimized_for_inference
from harken.measure.edit_distance import (
    EditOp,
    align_texts,
    count_edits,
    edits_by_speaker,
    transcription_samples,
)
from harken.measure.interval import share
from harken.measure.scored_answers import exact_matches
from harken.measure.tagging import confusions
from harken.measure.word_times import NOTES, attention_in_words, time_error
from harken.models.recognizer import BLANK, RecognizerConfig, SpeechRecognizer
from harken.models.seq2seq import EncoderOutput
from harken.tasks.attention_view import (
    AttentionExample,
    AudioView,
    output_title,
    self_attention_view,
)
from harken.tasks.chunks import Chunk, Frames, Transcript, cut_at_silence, join_transcripts
from harken.tasks.prediction import Evaluation, Prediction, Table, beam_prediction, truncation_of
from harken.tasks.seq2seq import output_views, scored_output
from harken.tasks.task import Indices, Keys, Predictor, SplitPaths, sample_keys
from harken.training.distributed import map_batches
from harken.training.loop import StageConfig
from harken.training.optimizer import AdamWConfig, MuonConfig, OptimizerConfig
from harken.training.runtime import RuntimeConfig
from harken.training.tracking import Tracker

BATCH_SIZE = 16  # sounds
MAX_TOKENS = 1000  # for a model without a decoder
MAX_CONFUSIONS = 20  # rows of the table


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeData(SplitPaths):
    """Manifests of audio files and transcripts; if `dev` is a share, utterances are held out."""

    # maximum length of a recording or segment in seconds
    max_seconds: float = bounded(MAX_SECONDS, above=0.0, at_most=1e5)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeEncoding:
    """Audio to frames, text to tokens."""

    # log-mel filterbank; a Whisper folder in `model.start_from` determines its own
    filterbank: FilterbankConfig | WhisperFilterbankConfig = FilterbankConfig(
        normalize="mean_and_variance"
    )
    # of transcripts
    tokenizer: TokenizerConfig | WhisperTokenizerConfig = field(default_factory=CharactersConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeStage(StageConfig):
    """Training on utterances: augmentation and loss."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)  # optimizer steps
    # Optimizer and learning rate.
    optimizer: OptimizerConfig = MuonConfig(lr=0.01, fallback=AdamWConfig(lr=0.005))
    batch_frames: int = bounded(6000, at_least=1, at_most=MAX_BATCH)  # frames per batch
    ctc_weight: float = bounded(0.3, at_least=0.0, at_most=1.0)  # weight of CTC in the joint loss
    label_smoothing: float = bounded(0.1, at_least=0.0, below=1.0)  # of the decoder's targets
    # Factors of speed perturbation.
    speeds: tuple[float, ...] = bounded((0.9, 1.0, 1.1), at_least=0.5, at_most=2.0)
    random_equalizer: RandomEqualizerConfig = RandomEqualizerConfig()  # spectral augmentation
    spec_augment: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)  # SpecAugment

    def __post_init__(self) -> None:
        StageConfig.__post_init__(self)  # super() fails in a dataclass with slots
        if not self.speeds:
            raise ValueError("speeds is empty; [1.0] leaves every sound unchanged")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeTraining:
    """Runtime, and the only stage of training."""

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)  # device and precision
    track: tuple[Tracker, ...] = ()  # "tensorboard" writes event files into the run folder
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


class SpeechPredictor(Predictor[TranscribeRecipe, Utterance, Vocabulary, SpeechRecognizer]):
    """A trained speech recognizer."""

    @property
    def filterbank(self) -> FeaturesConfig:
        return self.recipe.encode.filterbank

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        return self.predict_batch(inputs, sample_keys(inputs, indices), nbest, times=times)

    def predict_batch(
        self, inputs: Sequence[str], keys: Keys, nbest: int, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Transcribe audio files or parts of them; `-` is stdin."""
        frames = frames_of(map(self._signal, inputs), self.filterbank)
        transcripts = self.transcribe(frames, keys, nbest, times=times)
        for name, transcript in zip(inputs, transcripts, strict=True):
            prediction = beam_prediction(name, transcript.beam, self.vocabulary, nbest)
            yield replace(prediction, words=tuple(transcript.words))

    def evaluate(self, examples: Sequence[Utterance], condition: str | None = None) -> Evaluation:
        """Compute the metrics; a condition first changes the sounds or references."""
        rate = self.filterbank.sample_rate
        signals: Sequence[Signal] = UtteranceSignals(examples, rate, self.recipe.data.max_seconds)
        if condition is not None:
            parsed = parse_condition(condition)
            signals, examples = apply_condition(parsed, signals, examples, rate, self.recipe.seed)
        expected = [utterance.text for utterance in examples]
        frames = frames_of(signals, self.filterbank)
        has_times = any(utterance.words for utterance in examples)
        transcripts = list(self.transcribe(frames, sample_keys(expected), times=has_times))
        predictions = [
            beam_prediction(segment_name(utterance), transcript.beam, self.vocabulary)
            for utterance, transcript in zip(examples, transcripts, strict=True)
        ]
        outputs = [prediction.output for prediction in predictions]
        samples, notes = transcription_samples(outputs, expected)
        alignments = align_texts(outputs, expected, units="words")
        if has_times:
            spoken = [utterance.words for utterance in examples]
            predicted = [transcript.words for transcript in transcripts]
            samples["word_time_error"] = time_error(spoken, predicted, alignments)
            if "attention" in self.model.modes:
                attended = [transcript.attended for transcript in transcripts]
                samples["attention_in_word"] = attention_in_words(spoken, attended, alignments)
        return Evaluation(
            n=len(examples),
            samples={**samples, "exact_match": share(exact_matches(outputs, expected))},
            notes={**notes, **{name: note for name, note in NOTES.items() if name in samples}},
            predictions=predictions,
            expected=expected,
            tables=speech_tables([utterance.speaker for utterance in examples], alignments),
        )

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention over the start of a sound, up to the model's limit.

        Without a decoder, only the encoder is shown. If the output is empty, the decoder predicts
        <end>.
        """
        if not has_multihead(self.model):
            return None
        (frames,) = frames_of([self._signal(text)], self.filterbank)
        total, frames = len(frames), frames[: self.model.max_frames]
        (transcript,) = self.transcribe([frames], [(0,)], times=True)
        start, *known = self.vocabulary.decoder.start
        scored = scored_output(transcript.beam[0].tokens, output, self.vocabulary)
        outputs, has_steps = [*known, *scored.targets], "attention" in self.model.modes
        with torch.inference_mode():
            count = self._encode([frames]).memory.shape[1]
        times = [f"{self._seconds(state + 0.5):.2f} s" for state in range(count)]
        frontend, filterbank = self.model.frontend, self.filterbank
        view = AudioView(
            spectrogram=frames.numpy(),
            frame_seconds=filterbank.hop_ms / 1000,
            first_frame_seconds=filterbank.seconds_of(0),
            state_seconds=filterbank.hop_ms / 1000 * frontend.stride,
            first_state_seconds=filterbank.seconds_of(frontend.offset),
            words=transcript.words,
        )
        encoder = self_attention_view("time in seconds", times, is_encoder_attention)
        return AttentionExample(
            title=f"{Path(text).name}: {output_title(scored.text)}",
            run=lambda: self.model.output_log_probs(
                self._encode([frames]),
                scored.targets,
                prompt=self.vocabulary.decoder.start,
                end=self.vocabulary.special.end,
            ),
            output=scored if has_steps else scored._replace(targets=[0], token_texts=None),
            views=output_views(
                outputs, self.vocabulary.token_texts, encoder, "sound", sound=view, start=start
            ),
            truncation=truncation_of(len(frames), total, "first", "frames"),
        )

    def transcribe(
        self, sounds: Iterable[Frames], keys: Keys, nbest: int = 1, *, times: bool = False
    ) -> Iterator[Transcript]:
        """Transcribe each sound, in order; `keys` seed the sampling."""
        pending = zip(sounds, keys, strict=True)
        batches = iter(lambda: list(islice(pending, BATCH_SIZE)), [])

        def transcribe_batch(batch: Sequence[tuple[Frames, SampleKey]]) -> list[Transcript]:
            cut = [cut_at_silence(frames, self.model.max_frames, key) for frames, key in batch]
            all_chunks = list(chain.from_iterable(cut))
            transcripts = iter(self._transcribe_batch(all_chunks, nbest, times))
            return [join_transcripts(list(islice(transcripts, len(chunks)))) for chunks in cut]

        with optimized_for_inference(self.model):
            yield from chain.from_iterable(map_batches(transcribe_batch, batches))

    @torch.inference_mode()
    def _transcribe_batch(
        self, chunks: Sequence[Chunk], nbest: int, times: bool
    ) -> list[Transcript]:
        model, search = self.model.eval(), self.recipe.search
        encoded = self._encode([chunk.frames for chunk in chunks])
        (start, *known), *suppressed = self.vocabulary.decoder
        end, limits = self.vocabulary.special.end, [search.max_tokens or MAX_TOKENS]
        if model.max_target is not None:
            limits.append(model.max_target - len(known))
        beams = search_speech(
            model,
            *encoded,
            search=search,
            blank=BLANK,
            end=end,
            max_tokens=min(limits),
            nbest=nbest,
            start=[start, *known],
            suppressed=suppressed,
            sample_keys=[chunk.key for chunk in chunks],
        )
        if not times:
            return [Transcript(beam=beam) for beam in beams]
        best, weights = [beam[0].tokens for beam in beams], None
        if "attention" in model.modes:
            forced = [[*known, *tokens] for tokens in best]
            weights = [
                heads[:, len(known) :]
                for heads in forced_cross_attention(model, *encoded, forced, start)
            ]
        # Of the states of the sound, without the silence that the frontend adds.
        counts = [-(-max(len(chunk.frames), 1) // model.frontend.stride) for chunk in chunks]
        spans = self._spans(encoded, counts, best, weights)
        return [
            Transcript(
                beam=beams[row],
                words=self._words(best[row], spans[row], chunk.first),
                attended=self._peak_times(best[row], weights[row], chunk.first) if weights else (),
            )
            for row, chunk in enumerate(chunks)
        ]

    def _signal(self, name: str) -> Signal:
        return load_signal(name, self.filterbank.sample_rate, self.recipe.data.max_seconds)

    def _encode(self, sounds: Sequence[Frames]) -> EncoderOutput:
        # A sound that is too short for a frame is read as one frame of zeros.
        silence = torch.zeros(1, self.filterbank.mel_bins)
        padded = pad_sequence([frames if len(frames) else silence for frames in sounds], True)
        lengths = torch.tensor([max(len(frames), 1) for frames in sounds])
        present = torch.arange(padded.shape[1]) < lengths[:, None]
        return self.model.encode(padded.to(self.device), present.to(self.device))

    def _spans(
        self,
        encoded: EncoderOutput,
        counts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        weights: Sequence[Float[Tensor, "k T S"]] | None,
    ) -> list[list[Span]]:
        """Return the encoder states of each token; spans end halfway between token centers."""
        if weights is None or decoding_mode(self.model, self.recipe.search.mode) != "attention":
            log_probs = self.model.ctc_log_probs(encoded.memory)
            paths = align(log_probs, encoded.present, tokens, blank=BLANK)
            spans = [[] if path is None else path.spans for path in paths]
            centers = [[(span.start + span.end - 1) / 2 for span in row] for row in spans]
        else:
            pairs = zip(weights, counts, strict=True)
            centers = [find_peaks(heads.mean(dim=0)[:, :count]).tolist() for heads, count in pairs]
        return list(map(spans_around, centers, counts))

    def _peak_times(
        self, tokens: Sequence[int], weights: Float[Tensor, "k T S"], first: int
    ) -> list[tuple[int, float]]:
        states = weights.mean(dim=0).argmax(dim=1).tolist() if tokens else []
        seconds = [self._seconds(state + 0.5, first) for state in states]
        return list(zip(self.vocabulary.word_indices(tokens), seconds, strict=True))

    def _words(self, tokens: Sequence[int], spans: Sequence[Span], first: int) -> list[SpokenWord]:
        """Return words with times from the spans of tokens in encoder states."""
        words = self.vocabulary.decode([tokens])[0].split()
        if len(spans) != len(tokens) or not words:
            return []
        indices = self.vocabulary.word_indices(tokens)
        starts = [True, *(left != right for left, right in pairwise(indices))]
        return [
            SpokenWord(words[index], *(self._seconds(edge, first) for edge in span))
            for index, span in zip(dict.fromkeys(indices), word_spans(spans, starts), strict=True)
        ]

    def _seconds(self, state: float, first: int = 0) -> float:
        """Convert a position in encoder states to seconds; state `i` spans `i` to `i + 1`.

        `first` is the index of the first encoded frame in the sound.
        """
        frontend = self.model.frontend
        frame = first + frontend.offset + frontend.stride * (state - 0.5)
        return max(0.0, self.filterbank.seconds_of(frame))


def speech_tables(speakers: Sequence[str], sentences: Sequence[Sequence[EditOp]]) -> list[Table]:
    """Return tables of error rates by speaker and of confusions."""
    edits = list(map(count_edits, sentences))
    tables = []
    if len(set(speakers)) > 1:
        rows = [
            (name or "unknown", counts.reference_units, f"{100 * counts.rate:.1f} %", *counts[1:])
            for name, counts in edits_by_speaker(speakers, edits).items()
        ]
        header = ("speaker", "words", "error rate", "substituted", "deleted", "inserted")
        tables.append(Table(title="Error rate by speaker", header=header, rows=rows))
    pairs = Counter((op.reference, op.hypothesis) for ops in sentences for op in ops)
    if wrong := confusions(pairs, MAX_CONFUSIONS):
        confused = [(pair.expected or "–", pair.predicted or "–", pair.words) for pair in wrong]
        tables.append(
            Table(title="Confusions", header=("expected", "output", "count"), rows=confused)
        )
    return tables
