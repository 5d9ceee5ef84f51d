"""Examples: the records that readers return and tasks use."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its correct answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaggedToken:
    """A word with its predicted tag and the probability of the tag."""

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
    """A word with its times in seconds from the start of the utterance."""

    word: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Utterance:
    """A segment of an audio file and its transcript."""

    audio: Path
    text: str
    speaker: str = ""  # empty if unknown
    start: float = 0.0  # seconds into the file
    end: float | None = None  # None: the end of the file
    words: tuple[SpokenWord, ...] = ()  # empty if their times are unknown


@dataclass(frozen=True, slots=True)
class Box:
    """A bounding box in pixels; x and y are those of its upper left corner."""

    x: float  # from the left edge of the image
    y: float  # from the upper edge
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class CaptionedImage:
    """An image (a file, or a row of an array) and its captions."""

    image: Path | int
    captions: tuple[str, ...]
    boxes: tuple[Box, ...] = ()  # one per word of the only caption; empty if unknown


@dataclass(frozen=True, slots=True)
class LabeledExample:
    """A text, or the name of a sound or image as `predict` reads it, and its labels."""

    input: str
    labels: tuple[str, ...]  # in alphabetical order
    file: Path | None = None  # that contains the sound or image
