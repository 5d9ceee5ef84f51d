"""Right or wrong, and what an answer that knows nothing would score."""

from collections import Counter
from collections.abc import Sequence


def exact_matches(answers: Sequence[str], expected: Sequence[str]) -> list[bool]:
    """Equal but for white space at the ends."""
    return [one.strip() == other.strip() for one, other in zip(answers, expected, strict=True)]


def majority_answer(answers: Sequence[str]) -> str:
    """What to answer when nothing is known; of equally common ones the first in the alphabet."""
    counts = Counter(answer.strip() for answer in answers)
    return min(counts, key=lambda answer: (-counts[answer], answer))
