"""Answers with confidences and correctness, exact matches, and the majority baseline."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike


class Answer(NamedTuple):
    """An answer about a name, with its confidence."""

    name: str
    answer: str
    confidence: float


class ScoredAnswers:
    """Confidences of answers, limited to 0..1 (NaN is 0), and whether each answer is correct."""

    def __init__(self, confidences: ArrayLike, correct: ArrayLike) -> None:
        valid = np.nan_to_num(np.asarray(confidences, dtype=np.float64), nan=0.0)
        self.confidences: Float[np.ndarray, "answers"] = valid.clip(0.0, 1.0)
        self.correct: Bool[np.ndarray, "answers"] = np.asarray(correct, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.correct)

    def at(self, indices: Sequence[int]) -> "ScoredAnswers":
        chosen = np.asarray(indices, dtype=np.int64)
        return ScoredAnswers(self.confidences[chosen], self.correct[chosen])


def exact_matches(answers: Sequence[str], expected: Sequence[str]) -> list[bool]:
    """Return whether each answer is the expected one, ignoring white space at the ends."""
    return [text.strip() == true.strip() for text, true in zip(answers, expected, strict=True)]


def majority_answer(answers: Sequence[str]) -> str:
    """Return the most frequent answer, the alphabetically first if tied."""
    counts = Counter(answer.strip() for answer in answers)
    return min(counts, key=lambda answer: (-counts[answer], answer))
