"""Answers with confidences and correctness, exact matches, and the majority baseline."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float


class Answer(NamedTuple):
    """An answer about a name, with its confidence."""

    name: str
    answer: str
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredAnswers:
    """Confidences in 0..1, and whether each answer is right."""

    confidences: Float[np.ndarray, "answers"]
    correct: Bool[np.ndarray, "answers"]

    def __len__(self) -> int:
        return len(self.correct)

    def at(self, indices: Sequence[int]) -> "ScoredAnswers":
        """Return the answers at these indices."""
        chosen = np.asarray(indices, dtype=np.int64)
        return ScoredAnswers(confidences=self.confidences[chosen], correct=self.correct[chosen])


def score_answers(confidences: Sequence[float], right: Sequence[bool]) -> ScoredAnswers:
    """Convert lists; a NaN, from a diverged model, counts as a confidence of 0."""
    valid = np.nan_to_num(np.asarray(confidences, dtype=np.float64), nan=0.0)
    return ScoredAnswers(
        confidences=valid.clip(0.0, 1.0), correct=np.asarray(right, dtype=np.bool_)
    )


def exact_matches(answers: Sequence[str], expected: Sequence[str]) -> list[bool]:
    """Return whether each answer is the expected one, ignoring white space at the ends."""
    return [text.strip() == other.strip() for text, other in zip(answers, expected, strict=True)]


def majority_answer(answers: Sequence[str]) -> str:
    """Return the most frequent answer, of equals the alphabetically first."""
    counts = Counter(answer.strip() for answer in answers)
    return min(counts, key=lambda answer: (-counts[answer], answer))
