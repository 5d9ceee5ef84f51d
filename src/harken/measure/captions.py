"""Captions to BLEU-1 to BLEU-4, CIDEr and exact matches, with several references a picture.

    BLEU-N = 100 bp exp(1/N sum over n = 1..N of log(matches_n / written_n))
    bp     = min(1, exp(1 - expected / written))     expected: the length of the closest reference

A sequence of words matches as often as it stands in the reference that has it most. Nothing is
smoothed: without a match of N words BLEU-N is 0. There coco-caption, which adds 1e-15 to matches
and 1e-9 to what was written, has a hundredth of a point, or up to 3 where no caption has N words.

Points are a hundred times what coco-caption prints, as in papers' tables; CIDEr can be above 100.
BLEU of translations, cased, smoothed and against one reference, is in `bleu.py`.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

import numpy as np
from jaxtyping import Float

from harken.measure.bleu import corpus_score
from harken.measure.caption_words import NOTE, Words, sequences, words_of
from harken.measure.cider import ORDERS, cider
from harken.measure.interval import Counts, Sample, share

Sums = Float[np.ndarray, "rows parts"]
Figures = Float[np.ndarray, "rows"]


def caption_samples(
    captions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Samples by metric, and for each what a reader must know to compare it.

    Each picture has a caption and one reference at least; how many may differ.
    """
    assert all(references), "a picture without a reference cannot be measured"
    written = [words_of(one) for one in captions]
    expected = [[words_of(one) for one in own] for own in references]
    counts, values = bleu_counts(written, expected), cider(written, expected)
    samples = {
        **{f"bleu_{order}": corpus_score(up_to(counts, order), bleu) for order in ORDERS},
        "cider_d": mean_points([one.d for one in values]),
        "cider": mean_points([one.plain for one in values]),
        "exact_match": share(match_any(captions, references)),
    }
    return samples, notes_for(references)


def notes_for(references: Sequence[Sequence[str]]) -> dict[str, str]:
    """How many references there are is part of what a figure means."""
    fewest, most = min(map(len, references)), max(map(len, references))
    number = f"{fewest} to {most}" if fewest < most else f"{most}"
    fixed = (
        "document frequencies from all references of this set, for its interval too, so compare "
        "only figures of the same set"
    )
    return {
        "bleu_1": f"BLEU of single words, references a picture: {number}, closest length, not "
        f"smoothed; {NOTE}",
        **{
            f"bleu_{order}": f"as bleu_1, of sequences of 1 to {order} words"
            for order in ORDERS[1:]
        },
        "cider_d": "CIDEr-D, the CIDEr of most papers, a hundred times coco-caption's; words as "
        f"bleu_1; {fixed}",
        "cider": f"CIDEr as first defined, without stems, on the scale of cider_d; {fixed}",
        "exact_match": "captions equal to one of their references, case and punctuation compared",
    }


def bleu_counts(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> Counts:
    """Written and expected words, then matches and written sequences of every order in turn."""
    rows = []
    for caption, own in zip(captions, references, strict=True):
        # Of two references as close, the shorter counts.
        _, closest = min((abs(len(one) - len(caption)), len(one)) for one in own)
        row = [len(caption), closest]
        for order in ORDERS:
            found = sequences(caption, order)
            most = reduce(or_, (sequences(one, order) for one in own))
            row += [(found & most).total(), found.total()]
        rows.append(row)
    return np.array(rows, dtype=np.float64)


def up_to(counts: Counts, order: int) -> Counts:
    """Only the parts that BLEU of this order is made of."""
    return counts[:, : 2 + 2 * order]


def bleu(sums: Sums) -> Figures:
    """In points, of as many orders as there are parts for."""
    written, expected, matches, totals = sums[:, 0], sums[:, 1], sums[:, 2::2], sums[:, 3::2]
    precisions = np.divide(matches, totals, out=np.ones_like(totals), where=matches > 0)
    brevity = np.divide(expected, written, out=np.ones_like(written), where=written > 0)
    points: Figures = 100 * np.exp(np.minimum(0, 1 - brevity) + np.log(precisions).mean(axis=1))
    return np.where((matches > 0).all(axis=1), points, 0.0)


def mean_points(values: Sequence[float]) -> Sample:
    """A hundred times their mean."""
    points = 100 * np.asarray(values, dtype=np.float64)
    counts = np.stack((points, np.ones_like(points)), axis=1)
    return Sample(counts=counts, unit="points")


def match_any(captions: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool]:
    """Equal to one of its references but for white space at the ends."""
    return [
        caption.strip() in {one.strip() for one in own}
        for caption, own in zip(captions, references, strict=True)
    ]
