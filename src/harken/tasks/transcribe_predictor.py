"""Transcribe sounds, predict word times, and evaluate both.

A sound that is longer than the model's limit is cut where it is quietest, and the transcripts of
its chunks are joined.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from harken.augment.conditions import apply_condition, parse_condition
from harken.decode.alignment import align, peaks, spans_around, word_spans
from harken.decode.ctc import Span
from harken.decode.joint import decoding_mode, search_speech
from harken.decode.sampling import SampleKey
from harken.decode.stepper import TokenHypothesis, concatenate
from harken.encode.filterbank import FilterbankConfig, frames_of
from harken.encode.vocabulary import END, Vocabulary
from harken.formats.examples import SpokenWord, Utterance
from harken.formats.sound import Signal, Sounds, name_of, signal_of
from harken.inspection.record import has_attention
from harken.inspection.refs import is_encoder_attention
from harken.inspection.search_attention import forced_cross_attention
from harken.measure.edit_distance import (
    EditOp,
    align_texts,
    confusion_counts,
    count_edits,
    edits_by_speaker,
    transcription_samples,
)
from harken.measure.interval import share
from harken.measure.scored_answers import exact_matches
from harken.measure.tagging import confusions
from harken.measure.word_times import NOTES, attention_in_words, time_error
from harken.models.recognizer import BLANK, SpeechRecognizer
from harken.models.seq2seq import EncoderOutput
from harken.tasks.attention_view import AttentionExample, AudioView, output_title, self_view
from harken.tasks.prediction import (
    Evaluation,
    Indices,
    Prediction,
    Table,
    prediction_of,
    truncation_of,
)
from harken.tasks.seq2seq import decoder_inputs, output_views, sample_keys
from harken.tasks.task import Predictor
from harken.tasks.transcribe_data import TranscribeRecipe

BATCH_SIZE = 16  # sounds
MAX_TOKENS = 1000  # for a model without a decoder
QUIET_FRAMES = 10  # a sound is cut in the middle of the quietest window of this length
MAX_CONFUSIONS = 20  # rows of the table

Frames = Float[Tensor, "S F"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """The hypotheses for a sound, the best first; times are empty if they were not requested."""

    beam: Sequence[TokenHypothesis]
    words: Sequence[SpokenWord] = ()  # of the best hypothesis
    # For each token, the index of its word and the second with the most attention; with a decoder.
    attended: Sequence[tuple[int, float]] = ()


class Chunk(NamedTuple):
    """Consecutive frames of a sound."""

    frames: Frames
    first: int  # index of the first frame


class SpeechPredictor(Predictor[TranscribeRecipe, Utterance, Vocabulary, SpeechRecognizer]):
    """A trained recognizer."""

    @property
    def filterbank(self) -> FilterbankConfig:
        return self.recipe.encode.filterbank

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Indices = None, *, times: bool = False
    ) -> Iterator[Prediction]:
        """Transcribe audio files or parts of them; `-` is stdin."""
        frames = frames_of(map(self._signal, inputs), self.filterbank)
        transcripts = self.transcribe(frames, sample_keys(inputs, indices), nbest, times=times)
        for name, transcript in zip(inputs, transcripts, strict=True):
            prediction = prediction_of(name, transcript.beam, self.vocabulary, nbest)
            yield replace(prediction, words=tuple(transcript.words))

    def evaluate(self, examples: Sequence[Utterance], condition: str | None = None) -> Evaluation:
        """Compute the metrics; a condition changes the sounds or references first."""
        rate = self.filterbank.sample_rate
        signals: Sequence[Signal] = Sounds(examples, rate, self.recipe.data.max_seconds)
        if condition is not None:
            parsed = parse_condition(condition)
            signals, examples = apply_condition(parsed, signals, examples, rate, self.recipe.seed)
        expected = [utterance.text for utterance in examples]
        frames = frames_of(signals, self.filterbank)
        timed = any(utterance.words for utterance in examples)
        transcripts = list(self.transcribe(frames, sample_keys(expected), times=timed))
        predictions = [
            prediction_of(name_of(utterance), transcript.beam, self.vocabulary)
            for utterance, transcript in zip(examples, transcripts, strict=True)
        ]
        outputs = [prediction.output for prediction in predictions]
        samples, notes = transcription_samples(outputs, expected)
        words = align_texts(outputs, expected, units="words")
        if timed:
            spoken = [utterance.words for utterance in examples]
            predicted = [transcript.words for transcript in transcripts]
            samples["word_time_error"] = time_error(spoken, predicted, words)
            if "attention" in self.model.modes:
                attended = [transcript.attended for transcript in transcripts]
                samples["attention_in_word"] = attention_in_words(spoken, attended, words)
        return Evaluation(
            n=len(examples),
            samples={**samples, "exact_match": share(exact_matches(outputs, expected))},
            notes={**notes, **{name: note for name, note in NOTES.items() if name in samples}},
            predictions=predictions,
            expected=expected,
            tables=speech_tables([utterance.speaker for utterance in examples], words),
        )

    def attention(self, text: str) -> AttentionExample | None:
        """Return the attention over the start of a sound, up to the model's limit.

        A model without a decoder shows its encoder; an empty output shows the attention of <end>.
        """
        if not has_attention(self.model):
            return None
        (frames,) = frames_of([self._signal(text)], self.filterbank)
        total, frames = len(frames), frames[: self.model.max_frames]
        (transcript,) = self.transcribe([frames], [(0,)], times=True)
        tokens = transcript.beam[0].tokens
        outputs = tokens or [END]
        with torch.inference_mode():
            count = self._encode([frames]).memory.shape[1]
        times = [f"{self._seconds(state + 0.5):.2f} s" for state in range(count)]
        front, sound = self.model.frontend, self.filterbank
        view = AudioView(
            spectrogram=frames.numpy(),
            frame_seconds=sound.hop_ms / 1000,
            first_frame_seconds=sound.seconds_of(0),
            place_seconds=sound.hop_ms / 1000 * front.stride,
            first_place_seconds=sound.seconds_of(front.offset),
            words=transcript.words,
        )
        encoder = self_view("time in seconds", times, is_encoder_attention)
        return AttentionExample(
            title=f"{Path(text).name}: {output_title(self.vocabulary.decode([tokens])[0])}",
            run=lambda: self._force(frames, outputs),
            views=output_views(outputs, self.vocabulary.pieces, encoder, "sound", sound=view),
            truncation=truncation_of(len(frames), total, "first", "frames"),
        )

    def transcribe(
        self,
        sounds: Iterable[Frames],
        keys: Iterable[SampleKey],
        nbest: int = 1,
        *,
        times: bool = False,
    ) -> Iterator[Transcript]:
        """Transcribe each sound, in order; a sample depends on the key of its sound."""
        pending = zip(sounds, keys, strict=True)
        while batch := list(islice(pending, BATCH_SIZE)):
            cut = [cut_at_silence(frames, self.model.max_frames) for frames, _ in batch]
            chunk_keys = [
                (*key, number)
                for (_, key), chunks in zip(batch, cut, strict=True)
                for number in range(len(chunks))
            ]
            flat = [chunk for chunks in cut for chunk in chunks]
            transcripts = iter(self._transcribe_together(flat, chunk_keys, nbest, times))
            for chunks in cut:
                yield join_transcripts(list(islice(transcripts, len(chunks))))

    @torch.inference_mode()
    def _transcribe_together(
        self, chunks: Sequence[Chunk], keys: Sequence[SampleKey], nbest: int, times: bool
    ) -> list[Transcript]:
        model = self.model.eval()
        encoded = self._encode([chunk.frames for chunk in chunks])
        limit = model.max_target or self.recipe.search.max_tokens or MAX_TOKENS
        beams = search_speech(
            model,
            *encoded,
            search=self.recipe.search,
            blank=BLANK,
            end=END,
            max_tokens=min(self.recipe.search.max_tokens or limit, limit),
            nbest=nbest,
            keys=keys,
        )
        if not times:
            return [Transcript(beam=beam) for beam in beams]
        texts, weights = [beam[0].tokens for beam in beams], None
        if "attention" in model.modes:
            weights = forced_cross_attention(model, *encoded, texts, END)
        spans = self._spans(encoded, texts, weights)
        return [
            Transcript(
                beam=beams[row],
                words=self._words(texts[row], spans[row], chunk.first),
                attended=self._attended(texts[row], weights[row], chunk.first) if weights else (),
            )
            for row, chunk in enumerate(chunks)
        ]

    def _signal(self, name: str) -> Signal:
        return signal_of(name, self.filterbank.sample_rate, self.recipe.data.max_seconds)

    def _encode(self, sounds: Sequence[Frames]) -> EncoderOutput:
        """Return the encoder states of a batch of sounds."""
        lengths = torch.tensor([len(frames) for frames in sounds])
        # A sound that is too short for a frame is read as one frame of zeros.
        padded = torch.zeros(len(sounds), max(int(lengths.max()), 1), self.filterbank.mel_bins)
        for row, frames in zip(padded, sounds, strict=True):
            row[: len(frames)] = frames
        present = torch.arange(padded.shape[1]) < lengths.clamp(min=1)[:, None]
        return self.model.encode(padded.to(self.device), present.to(self.device))

    def _force(self, frames: Frames, outputs: Sequence[int]) -> None:
        """Encode a sound and, if there is a decoder, decode the output with teacher forcing."""
        encoded = self._encode([frames])
        if "attention" in self.model.modes:
            tokens = decoder_inputs(outputs, encoded.memory.device)
            present = torch.ones_like(tokens, dtype=torch.bool)
            self.model.step(tokens, present, self.model.init_state(*encoded))

    def _spans(
        self,
        encoded: EncoderOutput,
        texts: Sequence[Sequence[int]],
        weights: Sequence[Float[Tensor, "k T S"]] | None,
    ) -> list[list[Span]]:
        """Return the span of encoder states of each token, by CTC or by attention.

        Spans meet in the middle between the centers of two tokens.
        """
        if weights is None or decoding_mode(self.model, self.recipe.search.mode) != "attention":
            logs = self.model.ctc_log_probs(encoded.memory)
            paths = align(logs, encoded.present, texts, blank=BLANK)
            centers = [
                [] if path is None else [(span.start + span.end - 1) / 2 for span in path.spans]
                for path in paths
            ]
        else:
            centers = [peaks(heads.mean(dim=0)).tolist() for heads in weights]
        counts = encoded.present.sum(dim=1).tolist()
        return list(map(spans_around, centers, counts))

    def _attended(
        self, text: Sequence[int], weights: Float[Tensor, "k T S"], first: int
    ) -> list[tuple[int, float]]:
        if not text:
            return []
        states = weights.mean(dim=0).argmax(dim=1).tolist()
        seconds = [self._seconds(state + 0.5, first) for state in states]
        return list(zip(self.vocabulary.word_numbers(text), seconds, strict=True))

    def _words(self, text: Sequence[int], spans: Sequence[Span], first: int) -> list[SpokenWord]:
        """Convert spans of tokens in encoder states to words in seconds."""
        words = self.vocabulary.decode([text])[0].split()
        if len(spans) != len(text) or not words:
            return []
        numbers = self.vocabulary.word_numbers(text)
        begins = [True, *(left != right for left, right in pairwise(numbers))]
        return [
            SpokenWord(words[number], *(self._seconds(edge, first) for edge in span))
            for number, span in zip(dict.fromkeys(numbers), word_spans(spans, begins), strict=True)
        ]

    def _seconds(self, state: float, first: int = 0) -> float:
        """Return when an encoder state begins; its center is at `state + 0.5`."""
        front = self.model.frontend
        frame = first + front.offset + front.stride * (state - 0.5)
        return max(0.0, self.filterbank.seconds_of(frame))


def cut_at_silence(frames: Frames, max_length: int | None) -> list[Chunk]:
    """Cut a long sound into chunks, each in its second half where it is quietest."""
    chunks, first = [], 0
    while max_length is not None and len(frames) - first > max_length:
        middle = first + max_length // 2
        loudness = frames[middle : first + max_length].mean(dim=1)
        window = min(QUIET_FRAMES, len(loudness))
        end = middle + int(loudness.unfold(0, window, 1).mean(dim=1).argmin()) + (window + 1) // 2
        chunks.append(Chunk(frames[first:end], first))
        first = end
    return [*chunks, Chunk(frames[first:], first)]


def join_transcripts(chunks: Sequence[Transcript]) -> Transcript:
    """Join the transcripts of the chunks of a sound, rank by rank."""
    if len(chunks) == 1:
        return chunks[0]
    return Transcript(
        beam=reduce(concatenate, (chunk.beam for chunk in chunks)),
        words=[word for chunk in chunks for word in chunk.words],
        attended=[],  # word indices start at 0 in each chunk
    )


def speech_tables(speakers: Sequence[str], sentences: Sequence[Sequence[EditOp]]) -> list[Table]:
    """Return error rates by speaker, and confusions."""
    edits = list(map(count_edits, sentences))
    tables = []
    if len(set(speakers)) > 1:
        rows = [
            (name or "unknown", counts.said, f"{100 * counts.rate:.1f} %", *counts[1:])
            for name, counts in edits_by_speaker(speakers, edits).items()
        ]
        header = ("speaker", "words", "errors", "substituted", "deleted", "inserted")
        tables.append(Table(title="Error rate by speaker", header=header, rows=rows))
    if wrong := confusions(confusion_counts(sentences), MAX_CONFUSIONS):
        pairs = [(pair.expected or "–", pair.said or "–", pair.words) for pair in wrong]
        tables.append(Table(title="Confusions", header=("said", "written", "times"), rows=pairs))
    return tables
