"""BLEU-1 to BLEU-4, CIDEr and exact matches of captions with several references per image.

    BLEU-N  = 100 bp exp(1/N sum over n = 1..N of log(matches_n / written_n))
    bp      = min(1, exp(1 - expected / written))     expected: the length of the closest reference

    g_n(c)  = counts of each n-gram of c, times log(images / images with this n-gram)
    CIDEr   = 10 mean over n = 1..4 and references r of   g_n(c) . g_n(r) / (|g_n(c)| |g_n(r)|)
    CIDEr-D = the same with  min(g_n(c), g_n(r)) . g_n(r)  above, times exp(-(c - r)^2 / (2 6^2))

An n-gram matches as often as in the reference that has it most. BLEU is not smoothed: without a
match of N words BLEU-N is 0, where coco-caption, which adds 1e-15 to matches and 1e-9 to what was
written, has a hundredth of a point, or up to 3 if no caption has N words.

CIDEr (Vedantam, Zitnick and Parikh, 2015) takes document frequencies from the references of the
evaluated set: an n-gram of every image weighs nothing, a set of one image has the value 0, and
values of two sets are not comparable. c and r in its last factor are lengths in words. Words are
not stemmed, as in coco-caption and unlike in the paper.

Values are a hundred times those of coco-caption, as in papers' tables; CIDEr can exceed 100.

Words are those of coco-caption, whose Penn Treebank tokenizer lower-cases and drops

    ''  '  ``  `  -LRB-  -RRB-  -LCB-  -RCB-  .  ?  !  ,  :  -  --  ...  ;

Brackets stay, since they are not in the list in lower case. A word is letters and digits with
- . / ' inside, or , : between digits; 's 're 've 'll 'd 'm n't and the "not" of "cannot" are words
of their own, and so is every other sign. Unlike the original, the dot of an abbreviation ("mr.") is
dropped, &amp; is not decoded and URLs are not recognized: the two differ in 52 of the 72,474
captions of Flickr8k and Multi30k.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from math import exp, hypot, log
from operator import or_
from statistics import fmean
from typing import NamedTuple

import numpy as np

from harken.measure.bleu import Figures, Sums, bleu_points, corpus_score
from harken.measure.interval import Counts, Sample, share

Words = Sequence[str]

WORD = re.compile(
    r"""
      can(?=not\b)
    | \w+?(?=n't\b) | n't\b
    | '(?:s|re|ve|ll|d|m)\b
    | \w+ (?: [-./]\w+ | (?<=\d)[,:]\d+ | '(?!(?:s|re|ve|ll|d|m|t)\b)\w+ )*
    | [^\w\s.?!,:;'"`‘’“”«»–—…-]
    """,
    re.VERBOSE,
)
ORDERS = range(1, 5)
CIDER_SCALE = 10.0
CIDER_SIGMA = 6.0  # words, of the length penalty


def caption_samples(
    captions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Return samples by metric, and a note for each on what it is comparable with.

    Each image has a caption and at least one reference; the number of references may differ.
    """
    assert all(references), "an image without a reference cannot be measured"
    written = [caption_words(caption) for caption in captions]
    expected = [[caption_words(text) for text in texts] for texts in references]
    counts, values = caption_bleu_counts(written, expected), cider(written, expected)
    matches = [
        caption.strip() in {text.strip() for text in texts}
        for caption, texts in zip(captions, references, strict=True)
    ]
    samples = {
        **{
            f"bleu_{order}": corpus_score(counts[:, : 2 + 2 * order], caption_bleu)
            for order in ORDERS
        },
        "cider_d": mean_points([value.d for value in values]),
        "cider": mean_points([value.plain for value in values]),
        "exact_match": share(matches),
    }
    fewest, most = min(map(len, references)), max(map(len, references))
    number = f"{fewest} to {most}" if fewest < most else f"{most}"
    frequencies = (
        "document frequencies from all references of this set, for its interval too, so compare "
        "only values of the same set"
    )
    notes = {
        "bleu_1": f"BLEU of single words, references per image: {number}, closest length, not "
        "smoothed; words in lower case, split as by coco-caption (PTB: 's and n't apart, hyphens "
        "inside), without . ? ! , : ; dashes and quotes",
        **{f"bleu_{order}": f"as bleu_1, of 1 to {order} words" for order in ORDERS[1:]},
        "cider_d": "CIDEr-D, the CIDEr of most papers, a hundred times coco-caption's; words as "
        f"bleu_1; {frequencies}",
        "cider": f"CIDEr as first defined, without stems, on the scale of cider_d; {frequencies}",
        "exact_match": "captions equal to one of their references, case and punctuation compared",
    }
    return samples, notes


def caption_words(caption: str) -> list[str]:
    """Split a caption into words as coco-caption does."""
    return WORD.findall(caption.lower().replace("’", "'"))


def word_ngrams(words: Words, order: int) -> Counter[tuple[str, ...]]:
    """Count the n-grams of one order."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


def caption_bleu_counts(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> Counts:
    """Return written and expected words, then matches and written n-grams of every order."""
    rows = []
    for caption, texts in zip(captions, references, strict=True):
        # Of two references as close, the shorter counts.
        _, closest = min((abs(len(text) - len(caption)), len(text)) for text in texts)
        row = [len(caption), closest]
        for order in ORDERS:
            written = word_ngrams(caption, order)
            expected = reduce(or_, (word_ngrams(text, order) for text in texts))
            row += [(written & expected).total(), written.total()]
        rows.append(row)
    return np.array(rows, dtype=np.float64)


def caption_bleu(sums: Sums) -> Figures:
    """Return BLEU in points, of as many orders as there are counts for."""
    matches, totals = sums[:, 2::2], sums[:, 3::2]
    precisions = np.divide(matches, totals, out=np.ones_like(totals), where=matches > 0)
    defined = np.logical_and.reduce(matches > 0, axis=1)
    return bleu_points(sums[:, 0], sums[:, 1], precisions, defined)


def mean_points(values: Sequence[float]) -> Sample:
    """Return a hundred times the mean."""
    points = 100 * np.asarray(values, dtype=np.float64)
    return Sample(counts=np.stack((points, np.ones_like(points)), axis=1), unit="points")


class Cider(NamedTuple):
    """Values of one image, from 0 to 10."""

    plain: float  # CIDEr
    d: float  # CIDEr-D, which coco-caption and most papers call CIDEr


def cider(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[Cider]:
    """Return the values of each image, with the document frequencies of all of them."""
    frequencies = Counter(
        ngram
        for texts in references
        for order in ORDERS
        for ngram in {ngram for text in texts for ngram in word_ngrams(text, order)}
    )

    def tf_idf(words: Words) -> list[dict[tuple[str, ...], float]]:
        return [
            {
                ngram: count * log(len(references) / max(1, frequencies[ngram]))
                for ngram, count in word_ngrams(words, order).items()
            }
            for order in ORDERS
        ]

    values = []
    for caption, texts in zip(captions, references, strict=True):
        plain, clipped = [], []
        written = tf_idf(caption)
        for text in texts:
            penalty = exp(-((len(caption) - len(text)) ** 2) / (2 * CIDER_SIGMA**2))
            for own, other in zip(written, tf_idf(text), strict=True):
                lengths = hypot(*own.values()) * hypot(*other.values()) or 1.0
                # In the order of the caption: the order of a set would change the last digit.
                shared = [(own[ngram], other[ngram]) for ngram in own if ngram in other]
                plain.append(sum(a * b for a, b in shared) / lengths)
                clipped.append(penalty * sum(min(a, b) * b for a, b in shared) / lengths)
        values.append(Cider(CIDER_SCALE * fmean(plain), CIDER_SCALE * fmean(clipped)))
    return values
