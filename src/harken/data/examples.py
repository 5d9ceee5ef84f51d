"""The records that readers make and tasks consume."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the one answer that counts as right."""

    question: str
    answer: str
