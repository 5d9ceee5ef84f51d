"""Sounds through a recogniser: frames -> memory -> texts and times, many together.

A sound that is longer than the model hears is cut where it is quietest, and what is said in its
pieces is put together. What is learnt and measured is in `transcribe.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from harken.decode.found import Found, follow
from harken.decode.sampling import SampleKey
from harken.decode.speech import SpeechSearchConfig, seek_speech, way_of
from harken.decode.times import Span, align, around, peaks, word_spans
from harken.encode.filterbank import FilterbankConfig
from harken.encode.vocabulary import END, Vocabulary
from harken.formats.examples import SpokenWord
from harken.inspection.forced import forced_cross_attention
from harken.inspection.refs import is_cross_attention, is_encoder_attention
from harken.models.recogniser import BLANK, Heard, Recogniser
from harken.tasks.looking import output_title, writing
from harken.tasks.task import AttentionExample, AttentionView, AudioView, truncation_of

TOGETHER = 16  # sounds in one batch
MOST_SYMBOLS = 1000  # for a model whose decoder sets no limit
QUIET_FRAMES = 10  # a cut is in the middle of so many frames that are quietest together

Frames = Float[Tensor, "S F"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """What was found for a sound, the best first, and when each word of the best was said.

    `looks` are, for each symbol, the number of its word and the second that the decoder looked at
    most while it decided. Both are empty where times were not asked for.
    """

    found: Sequence[Found]
    words: Sequence[SpokenWord] = ()
    looks: Sequence[tuple[int, float]] = ()  # empty too where the model has no decoder


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Frames of a sound from number `first` on."""

    frames: Frames
    first: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Listener:
    """A trained recogniser with what stands before and behind it."""

    model: Recogniser
    vocabulary: Vocabulary
    filterbank: FilterbankConfig
    search: SpeechSearchConfig

    def transcribe(
        self,
        sounds: Iterable[Frames],
        keys: Iterable[SampleKey],
        nbest: int = 1,
        *,
        times: bool = False,
    ) -> Iterator[Transcript]:
        """One for each sound, in order; a sample depends on the key of its sound."""
        waiting = zip(sounds, keys, strict=True)
        while some := list(islice(waiting, TOGETHER)):
            cut = [cut_at_silence(frames, self.model.longest_frames) for frames, _ in some]
            piece_keys = [
                (*key, place)
                for (_, key), pieces in zip(some, cut, strict=True)
                for place in range(len(pieces))
            ]
            flat = [piece for pieces in cut for piece in pieces]
            heard = iter(self._heard(flat, piece_keys, nbest, times))
            for pieces in cut:
                yield joined(list(islice(heard, len(pieces))))

    @torch.inference_mode()
    def _heard(
        self, pieces: Sequence[Piece], keys: Sequence[SampleKey], nbest: int, times: bool
    ) -> list[Transcript]:
        model = self.model.eval()
        heard = self.hear([piece.frames for piece in pieces])
        room = model.longest_output or self.search.most or MOST_SYMBOLS
        found = seek_speech(
            model,
            *heard,
            search=self.search,
            blank=BLANK,
            end=END,
            most=min(self.search.most or room, room),
            nbest=nbest,
            keys=keys,
        )
        if not times:
            return [Transcript(found=one) for one in found]
        texts, seen = [one[0].tokens for one in found], None
        if "attention" in model.ways:
            seen = forced_cross_attention(model, *heard, texts, END)
        spans = self._spans(heard, texts, seen)
        return [
            Transcript(
                found=found[row],
                words=self._words(texts[row], spans[row], piece.first),
                looks=() if seen is None else self._looks(texts[row], seen[row], piece.first),
            )
            for row, piece in enumerate(pieces)
        ]

    def hear(self, sounds: Sequence[Frames]) -> Heard:
        """The memory of sounds side by side."""
        device = next(self.model.parameters()).device
        lengths = torch.tensor([len(frames) for frames in sounds])
        # A sound too short for one frame still has a place, of silence.
        padded = torch.zeros(len(sounds), max(int(lengths.max()), 1), self.filterbank.bins)
        for row, frames in zip(padded, sounds, strict=True):
            row[: len(frames)] = frames
        present = torch.arange(padded.shape[1]) < lengths.clamp(min=1)[:, None]
        return self.model.hear(padded.to(device), present.to(device))

    def _spans(
        self,
        heard: Heard,
        texts: Sequence[Sequence[int]],
        seen: Sequence[Float[Tensor, "k T S"]] | None,
    ) -> list[list[Span]]:
        """The places of the memory at which each symbol is said: by CTC if asked, else attention.

        What stands between the places that are surest of two symbols is shared between them.
        """
        centres: list[list[float]]
        if seen is None or way_of(self.model, self.search.by) != "attention":
            symbols = self.model.symbols(heard.memory)
            paths = align(symbols, heard.present, texts, blank=BLANK)
            centres = [
                [] if path is None else [(one.start + one.end - 1) / 2 for one in path.spans]
                for path in paths
            ]
        else:
            centres = [peaks(weights.mean(dim=0)).tolist() for weights in seen]
        counts = heard.present.sum(dim=1).tolist()
        return [around(one, count) for one, count in zip(centres, counts, strict=True)]

    def _looks(
        self, text: Sequence[int], weights: Float[Tensor, "k T S"], first: int
    ) -> list[tuple[int, float]]:
        if not text:
            return []
        strongest = weights.mean(dim=0).argmax(dim=1).tolist()
        seconds = [self.seconds(place + 0.5, first) for place in strongest]
        return list(zip(self.vocabulary.word_numbers(text), seconds, strict=True))

    def _words(self, text: Sequence[int], spans: Sequence[Span], first: int) -> list[SpokenWord]:
        """Symbols' places of the memory -> words' seconds of the sound."""
        numbers, words = (
            self.vocabulary.word_numbers(text),
            self.vocabulary.decode([text])[0].split(),
        )
        begins = [at == 0 or one != numbers[at - 1] for at, one in enumerate(numbers)]
        if len(spans) != len(text) or not words:
            return []
        return [
            SpokenWord(
                words[number], self.seconds(span.start, first), self.seconds(span.end, first)
            )
            for number, span in zip(dict.fromkeys(numbers), word_spans(spans, begins), strict=True)
        ]

    def glimpse(self, frames: Frames, name: str) -> AttentionExample:
        """What is looked at as a sound is heard and written down.

        A model without a decoder shows its encoder; a decoder that writes nothing shows the step
        that decided to end. Of a sound that is longer than the model hears at once, the beginning
        is shown.
        """
        total, frames = len(frames), frames[: self.model.longest_frames]
        (transcript,) = self.transcribe([frames], [(0,)], times=True)
        text = transcript.found[0].tokens or [END]
        with torch.inference_mode():
            count = self.hear([frames]).memory.shape[1]
        told = [END, *text[:-1]]
        decided, before = map(self.vocabulary.pieces, (text, told))
        places = [f"{self.seconds(at + 0.5):.2f} s" for at in range(count)]
        front, sound = self.model.front, self.filterbank
        return AttentionExample(
            title=f"{Path(name).name}: "
            + output_title(self.vocabulary.decode([transcript.found[0].tokens])[0]),
            run=lambda: self._force(frames, told),
            views=[
                AttentionView(
                    title="Symbols written, looking at sound",
                    matches=is_cross_attention,
                    queries=decided,
                    keys=places,
                    sound=AudioView(
                        spectrogram=frames.numpy(),
                        frame_seconds=self.filterbank.hop_ms / 1000,
                        first_frame_seconds=sound.seconds_of(0),
                        place_seconds=self.filterbank.hop_ms / 1000 * front.stride,
                        first_place_seconds=sound.seconds_of(front.offset),
                        words=transcript.words,
                    ),
                ),
                AttentionView(
                    title="Encoder self-attention over time, in seconds",
                    matches=is_encoder_attention,
                    queries=places,
                    keys=places,
                ),
                writing("Symbols", decided, before),
            ],
            truncation=truncation_of(len(frames), total, "first", "frames"),
        )

    def _force(self, frames: Frames, told: Sequence[int]) -> None:
        """Hear a sound, and write what is known where the model has a decoder."""
        heard = self.hear([frames])
        if "attention" in self.model.ways:
            tokens = torch.tensor([told], device=heard.memory.device)
            present = torch.ones_like(tokens, dtype=torch.bool)
            self.model.extend(tokens, present, self.model.begin(*heard))

    def seconds(self, place: float, first: int = 0) -> float:
        """When the edge before a place of the memory is heard; half a place on, its middle."""
        front = self.model.front
        frame = first + front.offset + front.stride * (place - 0.5)
        return max(0.0, self.filterbank.seconds_of(frame))


def cut_at_silence(frames: Frames, room: int | None) -> list[Piece]:
    """Stretches of at most `room` frames, each cut in its later half where it is quietest."""
    pieces, first = [], 0
    while room is not None and len(frames) - first > room:
        loudness = frames[first + room // 2 : first + room].mean(dim=1)
        window = min(QUIET_FRAMES, len(loudness))
        quiet = loudness.unfold(0, window, 1).mean(dim=1)
        end = first + room // 2 + int(quiet.argmin()) + (window + 1) // 2
        pieces.append(Piece(frames=frames[first:end], first=first))
        first = end
    return [*pieces, Piece(frames=frames[first:], first=first)]


def joined(pieces: Sequence[Transcript]) -> Transcript:
    """What is said in the pieces of a sound as what is said in the whole, rank by rank."""
    if len(pieces) == 1:
        return pieces[0]
    return Transcript(
        found=reduce(follow, (piece.found for piece in pieces)),
        words=[word for piece in pieces for word in piece.words],
        looks=[],  # words of pieces are numbered apart
    )
