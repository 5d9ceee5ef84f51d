"""How much a caption says what people agree on: CIDEr and CIDEr-D of Vedantam, Zitnick and Parikh.

    g_n(c)    = counts of each n words in a row in c, times log(pictures / pictures that have them)
    CIDEr     = 10 mean over n = 1..4 and references r of   g_n(c) . g_n(r) / (|g_n(c)| |g_n(r)|)
    CIDEr-D   = the same with  min(g_n(c), g_n(r)) . g_n(r)  above, times exp(-(c - r)^2 / (2 6^2))

In the last factor c and r are the lengths in words; with it and the minimum, repeating a rare word
no longer pays. "Pictures that have them" counts pictures that have them in any reference, at least
one. Words are compared as they are: the paper's stems are not here, nor in coco-caption.

Document frequencies come from the references of the evaluated set. So a word in every picture
weighs nothing, a set of one picture has the value 0, and figures of two sets do not compare.
"""

from collections import Counter
from collections.abc import Sequence
from math import exp, hypot, log
from statistics import fmean
from typing import NamedTuple

from harken.measure.caption_words import Words, sequences

ORDERS = range(1, 5)
SCALE = 10.0
WIDTH = 6.0  # words by which lengths may differ before it costs much

Weights = dict[tuple[str, ...], float]


class Cider(NamedTuple):
    """Of one picture, from 0 to 10."""

    plain: float  # CIDEr
    d: float  # CIDEr-D, which coco-caption and most papers call CIDEr


def cider(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[Cider]:
    """Of each picture, with the document frequencies of all of them."""
    rarity = Rarity(references)
    return [
        consensus(caption, own, rarity) for caption, own in zip(captions, references, strict=True)
    ]


class Rarity:
    """log(pictures / pictures that have it) of anything that stands in a reference or does not."""

    def __init__(self, references: Sequence[Sequence[Words]]) -> None:
        self._pictures = len(references)
        self._having = Counter(
            one
            for captions in references
            for order in ORDERS
            for one in {found for caption in captions for found in sequences(caption, order)}
        )

    def weigh(self, words: Words) -> list[Weights]:
        """A vector of every order."""
        return [
            {
                one: times * log(self._pictures / max(1, self._having[one]))
                for one, times in sequences(words, order).items()
            }
            for order in ORDERS
        ]


def consensus(caption: Words, references: Sequence[Words], rarity: Rarity) -> Cider:
    """Of one picture."""
    plain, clipped = [], []
    written = rarity.weigh(caption)
    for reference in references:
        near = exp(-((len(caption) - len(reference)) ** 2) / (2 * WIDTH**2))
        for own, other in zip(written, rarity.weigh(reference), strict=True):
            lengths = hypot(*own.values()) * hypot(*other.values()) or 1.0
            # In the order of the caption: that of a set would change the last digit at every run.
            shared = [(own[one], other[one]) for one in own if one in other]
            plain.append(sum(a * b for a, b in shared) / lengths)
            clipped.append(near * sum(min(a, b) * b for a, b in shared) / lengths)
    return Cider(SCALE * fmean(plain), SCALE * fmean(clipped))
