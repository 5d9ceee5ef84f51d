"""Chunks of a sound that is longer than a speech recognizer can read, and their transcripts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from harken.decode.sampling import SampleKey
from harken.decode.stepper import TokenHypothesis, concatenate
from harken.formats.examples import SpokenWord

QUIET_FRAMES = 10  # a sound is cut in the middle of the quietest window of this length

Frames = Float[Tensor, "S F"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """The hypotheses for a sound, the best first, and word times if they were requested."""

    beam: Sequence[TokenHypothesis]
    words: Sequence[SpokenWord] = ()  # of the best hypothesis
    # For each token, its word index and the time of its largest attention weight, in seconds.
    attended: Sequence[tuple[int, float]] = ()


class Chunk(NamedTuple):
    """Consecutive frames of a sound."""

    frames: Frames
    first: int  # index of the first frame
    key: SampleKey = ()  # seeds the sampling


def cut_at_silence(frames: Frames, max_length: int | None, key: SampleKey = ()) -> list[Chunk]:
    """Cut a long sound at quiet frames into chunks of at most `max_length` frames."""
    chunks: list[Chunk] = []
    first = 0
    while max_length is not None and len(frames) - first > max_length:
        middle = first + max_length // 2
        loudness = frames[middle : first + max_length].mean(dim=1)
        window = min(QUIET_FRAMES, len(loudness))
        end = middle + int(loudness.unfold(0, window, 1).mean(dim=1).argmin()) + (window + 1) // 2
        chunks.append(Chunk(frames[first:end], first, (*key, len(chunks))))
        first = end
    return [*chunks, Chunk(frames[first:], first, (*key, len(chunks)))]


def join_transcripts(chunks: Sequence[Transcript]) -> Transcript:
    """Join the transcripts of consecutive chunks; hypotheses of equal rank are concatenated."""
    if len(chunks) == 1:
        return chunks[0]
    return Transcript(
        beam=reduce(concatenate, (chunk.beam for chunk in chunks)),
        words=[word for chunk in chunks for word in chunk.words],
        attended=[],  # cannot be joined: word indices start at 0 in each chunk
    )
