"""Answers with how sure the model was of each; scored, where each is right or wrong as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float


class Answer(NamedTuple):
    """What was answered about a name, and how surely."""

    name: str
    answer: str
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredAnswers:
    """Side by side; a confidence is in 0..1."""

    confidences: Float[np.ndarray, "answers"]
    right: Bool[np.ndarray, "answers"]

    def __len__(self) -> int:
        return len(self.right)

    def at(self, places: Sequence[int]) -> "ScoredAnswers":
        """Those that stand at these places."""
        chosen = np.asarray(places, dtype=np.int64)
        return ScoredAnswers(confidences=self.confidences[chosen], right=self.right[chosen])


def score_answers(confidences: Sequence[float], right: Sequence[bool]) -> ScoredAnswers:
    """From lists; what is not a number, of a model gone astray, is no confidence at all."""
    sure = np.nan_to_num(np.asarray(confidences, dtype=np.float64), nan=0.0)
    return ScoredAnswers(confidences=sure.clip(0.0, 1.0), right=np.asarray(right, dtype=np.bool_))
