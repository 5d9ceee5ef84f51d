"""BLEU and chrF from counts of n-grams.

    BLEU = 100 bp exp(1/4 sum over n = 1..4 of log(matches_n / n-grams of the hypotheses))
    bp   = min(1, exp(1 - reference words / hypothesis words))
    chrF = 100 (1 + 4) P R / (4 P + R)     P, R: means over n = 1..6 of precision and recall

The first order n without a match counts as half a match, the next as a quarter (smoothing "exp").
These are the formulas of sacrebleu, which counts the matches for `translations.py`. They are
implemented here because the jackknife needs the score without each sentence in turn.
"""

import numpy as np
from jaxtyping import Float

from harken.measure.interval import LOGIT_POINTS, Counts, MetricFunction, Sample

Sums = Float[np.ndarray, "rows parts"]  # sums of the columns of counts, over a set of sentences
Scores = Float[np.ndarray, "rows"]  # the metric of each set
CHRF_BETA = 2


def corpus_sample(counts: Counts, metric: MetricFunction) -> Sample:
    """Return the sample of a corpus-level metric from 0 to 100."""
    return Sample(counts=counts, metric=metric, unit="points", link=LOGIT_POINTS, averaged=False)


def bleu(sums: Sums, *, smooth: bool = True) -> Scores:
    """Return BLEU. It is 0 if no word matches or all hypotheses are too short for an order n.

    Without smoothing, it is also 0 if an order has no match.
    """
    matches, totals = np.hsplit(sums[:, 2:], 2)
    smoothed = np.where(matches > 0, matches, 0.5 ** np.cumsum(matches == 0, axis=1))
    precisions = np.divide(smoothed, totals, out=np.ones_like(totals), where=totals > 0)
    hypothesis, reference = sums[:, 0], sums[:, 1]
    ratio = np.divide(reference, hypothesis, out=np.ones_like(hypothesis), where=hypothesis > 0)
    points: Scores = 100 * np.exp(np.minimum(0, 1 - ratio) + np.log(precisions).mean(axis=1))
    is_matched = matches[:, 0] > 0 if smooth else (matches > 0).all(axis=1)
    return np.where(is_matched & (totals > 0).all(axis=1), points, 0.0)


def chrf(sums: Sums) -> Scores:
    """Return chrF over the orders that occur in both hypotheses and references."""
    hypothesis, reference, matches = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    present = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(present.sum(axis=1), 1)
    precision, recall = (
        np.divide(matches, totals, out=np.zeros_like(totals), where=present).sum(axis=1) / orders
        for totals in (hypothesis, reference)
    )
    weight = CHRF_BETA**2  # of recall, relative to precision
    numerator, denominator = 100 * (1 + weight) * precision * recall, weight * precision + recall
    zeros = np.zeros_like(denominator)
    points: Scores = np.divide(numerator, denominator, out=zeros, where=denominator > 0)
    return points
