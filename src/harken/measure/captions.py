"""BLEU-1 to BLEU-4, CIDEr and exact matches of captions with several references per image.

    BLEU-N  = 100 bp exp(1/N sum over n = 1..N of log(matches_n / n-grams of the captions))
    bp      = min(1, exp(1 - R / C))     C: words of the captions, R: of the closest references

    g_n(c)  = counts of each n-gram of c, times log(images / images with this n-gram)
    CIDEr   = 10 mean over n = 1..4 and references r of   g_n(c) . g_n(r) / (|g_n(c)| |g_n(r)|)
    CIDEr-D = the same with numerator exp(-(len c - len r)^2 / (2 6^2)) min(g_n(c), g_n(r)) . g_n(r)

Values are 100 times those of coco-caption, as in papers. BLEU is not smoothed. CIDEr (Vedantam et
al., 2015) takes document frequencies from the references of the evaluated set, so values on two
sets are not comparable. Words are those of coco-caption's Penn Treebank tokenizer: lower case,
without . ? ! , : ; dashes and quotes, not stemmed; 's and n't are separate words. Abbreviations,
HTML entities and URLs are split differently, which changes 52 of 72,474 captions of Flickr8k and
Multi30k.
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

from harken.measure.bleu import Scores, Sums, bleu, corpus_sample
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
CIDER_SIGMA = 6.0  # of the length penalty, in words


def caption_samples(
    captions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Return samples and notes by metric; every image needs a reference."""
    assert all(references), "an image without a reference cannot be measured"
    words = [caption_words(caption) for caption in captions]
    reference_words = [[caption_words(text) for text in texts] for texts in references]
    counts = caption_bleu_counts(words, reference_words)
    scores = cider_scores(words, reference_words)
    matches = [
        caption.strip() in {text.strip() for text in texts}
        for caption, texts in zip(captions, references, strict=True)
    ]
    samples = {
        **{
            f"bleu_{order}": corpus_sample(counts[:, : 2 + 2 * order], caption_bleu)
            for order in ORDERS
        },
        "cider_d": mean_points([score.cider_d for score in scores]),
        "cider": mean_points([score.cider for score in scores]),
        "exact_match": share(matches),
    }
    low, high = min(map(len, references)), max(map(len, references))
    per_image = f"{low} to {high}" if low < high else f"{high}"
    set_note = "document frequencies from this set; compare only values of the same set"
    notes = {
        "bleu_1": f"BLEU of single words, references per image: {per_image}, closest length, "
        "not smoothed; tokens of coco-caption (lower case, PTB, without punctuation)",
        **{f"bleu_{order}": f"as bleu_1, of 1 to {order} words" for order in ORDERS[1:]},
        "cider_d": f"CIDEr-D, 100 times coco-caption's CIDEr; words as bleu_1; {set_note}",
        "cider": f"original CIDEr, without stemming, on the scale of cider_d; {set_note}",
        "exact_match": "captions equal to a reference, with case and punctuation",
    }
    return samples, notes


def caption_words(caption: str) -> list[str]:
    """Split a caption into words as coco-caption does."""
    return WORD.findall(caption.lower().replace("’", "'"))


def word_ngrams(words: Words, order: int) -> Counter[tuple[str, ...]]:
    """Count the n-grams with n = `order`."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


def caption_bleu_counts(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> Counts:
    """Return words of caption and closest reference, then matches and n-grams of every order."""
    rows = []
    for caption, texts in zip(captions, references, strict=True):
        # Of two equally close references, the shorter one counts.
        _, closest = min((abs(len(text) - len(caption)), len(text)) for text in texts)
        row = [len(caption), closest]
        for order in ORDERS:
            ngrams = word_ngrams(caption, order)
            reference_ngrams = reduce(or_, (word_ngrams(text, order) for text in texts))
            row += [(ngrams & reference_ngrams).total(), ngrams.total()]
        rows.append(row)
    return np.array(rows, dtype=np.float64)


def caption_bleu(sums: Sums) -> Scores:
    """Return BLEU in points from sums of the columns of `caption_bleu_counts`."""
    return bleu(np.hstack((sums[:, :2], sums[:, 2::2], sums[:, 3::2])), smooth=False)


def mean_points(values: Sequence[float]) -> Sample:
    """Return a sample whose value is 100 times the mean."""
    points = 100 * np.asarray(values, dtype=np.float64)
    return Sample(counts=np.stack((points, np.ones_like(points)), axis=1), unit="points")


class CiderScores(NamedTuple):
    """Scores of one image, from 0 to 10; "CIDEr" in coco-caption and most papers is CIDEr-D."""

    cider: float
    cider_d: float


def cider_scores(
    captions: Sequence[Words], references: Sequence[Sequence[Words]]
) -> list[CiderScores]:
    """Return the scores of each image, with document frequencies over all images."""
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

    scores = []
    for caption, texts in zip(captions, references, strict=True):
        cosines, clipped = [], []
        vectors = tf_idf(caption)
        for text in texts:
            penalty = exp(-((len(caption) - len(text)) ** 2) / (2 * CIDER_SIGMA**2))
            for vector, reference in zip(vectors, tf_idf(text), strict=True):
                norms = hypot(*vector.values()) * hypot(*reference.values()) or 1.0
                # Sum in the order of the caption: the order of a set is not deterministic.
                shared = [(vector[key], reference[key]) for key in vector if key in reference]
                cosines.append(sum(a * b for a, b in shared) / norms)
                clipped.append(penalty * sum(min(a, b) * b for a, b in shared) / norms)
        scores.append(CiderScores(CIDER_SCALE * fmean(cosines), CIDER_SCALE * fmean(clipped)))
    return scores
