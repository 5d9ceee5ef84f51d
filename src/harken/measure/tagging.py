"""Tags said against tags expected: which are found, and which are taken for which."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harken.measure.interval import Sample, share_within

Tags = Sequence[Sequence[str]]
"""Of each sentence, the tag of each word."""

Pairs = Counter[tuple[str, str]]
"""How often (expected, said) occurred."""


class Confusion(NamedTuple):
    """A tag taken for another; `share` is of all words that should have had it."""

    expected: str
    said: str
    words: int
    share: float


class TagScore(NamedTuple):
    """How well one tag is found, over so many `words` that should have it."""

    tag: str
    precision: float
    recall: float
    f1: float
    words: int


def tag_accuracy(
    expected: Tags, said: Tags, among: Sequence[Sequence[bool]] | None = None
) -> Sample:
    """The share of words with the expected tag, of all or of some; sentences are independent."""
    among = among or [[True] * len(tags) for tags in expected]
    right = [
        sum(one == other for one, other, asked in zip(*sentence, strict=True) if asked)
        for sentence in zip(expected, said, among, strict=True)
    ]
    return share_within(right, [sum(asked) for asked in among])


def pair_counts(expected: Iterable[str], said: Iterable[str]) -> Pairs:
    """Every word's pair, counted."""
    return Counter(zip(expected, said, strict=True))


def confusions(pairs: Pairs, most: int) -> list[Confusion]:
    """The commonest mistakes, the commonest first, ties in the order of the alphabet."""
    wanted = _totals(pairs, 0)
    wrong = sorted((-count, pair) for pair, count in pairs.items() if pair[0] != pair[1])
    return [
        Confusion(expected, said, -count, -count / wanted[expected])
        for count, (expected, said) in wrong[:most]
    ]


def tag_scores(pairs: Pairs) -> list[TagScore]:
    """Precision, recall and their harmonic mean of each tag that was expected or said."""
    wanted, given = _totals(pairs, 0), _totals(pairs, 1)
    return [
        TagScore(
            tag,
            _share(pairs[tag, tag], given[tag]),
            _share(pairs[tag, tag], wanted[tag]),
            _share(2 * pairs[tag, tag], given[tag] + wanted[tag]),
            wanted[tag],
        )
        for tag in sorted(wanted.keys() | given.keys())
    ]


def _totals(pairs: Pairs, side: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    for pair, count in pairs.items():
        totals[pair[side]] += count
    return totals


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
