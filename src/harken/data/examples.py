"""The records that readers make and tasks consume."""

from dataclasses import dataclass


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
class Pair:
    """A sentence and its translation."""

    source: str
    target: str
