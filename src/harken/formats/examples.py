"""The records that readers make and tasks consume."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the one answer that counts as right."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaggedToken:
    """A word with a predicted tag and the probability of that tag."""

    token: str
    tag: str
    score: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word, and the seconds from the beginning of its utterance at which it starts and ends."""

    word: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Utterance:
    """A stretch of a sound file and what is said in it."""

    audio: Path
    text: str
    speaker: str = ""  # empty where nobody knows
    start: float = 0.0  # seconds into the file
    end: float | None = None  # None: to the end of the file
    words: tuple[SpokenWord, ...] = ()  # empty where their times are not known


@dataclass(frozen=True, slots=True)
class Box:
    """A place in a picture, in pixels from its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class CaptionedImage:
    """A picture (a file, or a row of an array) and its captions."""

    image: Path | int
    captions: tuple[str, ...]
    boxes: tuple[Box, ...] = ()  # one per word of the only caption; empty if unknown
