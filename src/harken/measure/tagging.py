"""Accuracy of tags, precision and recall of each tag, and the most frequent confusions."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from harken.measure.interval import Sample, clustered_share

Tags = Sequence[Sequence[str]]  # the tag of each word of each sentence
PairCounts = Counter[tuple[str, str]]  # by (expected tag, predicted tag)


class Confusion(NamedTuple):
    """Words with a wrong tag; `share` is their share of all words with the expected tag."""

    expected: str
    predicted: str
    words: int
    share: float


class TagScore(NamedTuple):
    """Precision, recall and F1 of a tag; `words` is the number of words with this expected tag."""

    tag: str
    precision: float
    recall: float
    f1: float
    words: int


def tag_accuracy(
    expected: Tags, predicted: Tags, mask: Sequence[Sequence[bool]] | None = None
) -> Sample:
    """Return the share of words with the correct tag, among all or those where `mask` is true."""
    mask = mask or [[True] * len(tags) for tags in expected]
    right = [
        sum(true == tag for true, tag, is_counted in zip(*sentence, strict=True) if is_counted)
        for sentence in zip(expected, predicted, mask, strict=True)
    ]
    return clustered_share(right, [sum(row) for row in mask])


def confusions(pairs: PairCounts, limit: int) -> list[Confusion]:
    """Return the most frequent confusions, ties in alphabetical order."""
    totals = _totals(pairs, side=0)
    wrong = sorted((-count, pair) for pair, count in pairs.items() if pair[0] != pair[1])
    return [
        Confusion(expected, predicted, -count, -count / totals[expected])
        for count, (expected, predicted) in wrong[:limit]
    ]


def tag_scores(pairs: PairCounts) -> list[TagScore]:
    """Return precision, recall and F1 of each tag that was expected or predicted."""
    expected, predicted = _totals(pairs, side=0), _totals(pairs, side=1)
    scores = []
    for tag in sorted(expected.keys() | predicted.keys()):
        right, totals = pairs[tag, tag], (predicted[tag], expected[tag])
        precision, recall = (right / total if total else 0.0 for total in totals)
        f1 = 2 * right / sum(totals)
        scores.append(TagScore(tag, precision, recall, f1, expected[tag]))
    return scores


def _totals(pairs: PairCounts, side: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    for pair, count in pairs.items():
        totals[pair[side]] += count
    return totals
