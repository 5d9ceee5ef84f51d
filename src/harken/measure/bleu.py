"""BLEU and chrF of translations: sacrebleu's counts and formulas, with intervals.

    BLEU = 100 bp exp(1/4 sum over n = 1..4 of log(matches_n / n-grams of the hypotheses))
    bp   = min(1, exp(1 - reference words / hypothesis words))
    chrF = 100 (1 + 4) P R / (4 P + R)     P, R: means over n = 1..6 of precision and recall

The first order without a match counts as half a match, the next as a quarter (smoothing "exp").
sacrebleu counts matches; the formulas are here because the jackknife needs the score without each
sentence. Each sentence has one reference.

`bleu` is sacrebleu's value for raw text. `bleu_moses` is what papers on Multi30k report: lower
case, normalized punctuation, Moses tokens. They differ by a point or more.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from harken.measure.interval import LOGIT_POINTS, Counts, MetricFunction, Sample

Sums = Float[np.ndarray, "rows parts"]
Scores = Float[np.ndarray, "rows"]


def translation_samples(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> tuple[dict[str, Sample], dict[str, str]]:
    """Return a sample and a note for each metric; `language` is a code such as "de"."""
    # Moses treats unknown languages as English.
    moses = [moses_tokens(lines, language) for lines in (hypotheses, references)]
    samples = {
        "bleu": corpus_sample(bleu_counts(hypotheses, references, tokenize="13a"), bleu),
        "chrf": corpus_sample(chrf_counts(hypotheses, references), chrf),
        "bleu_moses": corpus_sample(bleu_counts(*moses, tokenize="none"), bleu),
    }
    empty = [[""]]  # the signature contains the number of references
    cased, lower = BLEU(references=empty), BLEU(references=empty, lowercase=True, tokenize="none")
    notes = {
        "bleu": f"BLEU of raw text, {cased.get_signature()}",
        "chrf": f"chrF{CHRF.BETA} of raw text, {CHRF(references=empty).get_signature()}",
        "bleu_moses": "BLEU as in papers on Multi30k: lower-cased, punctuation normalized, Moses "
        f"tokens for {language!r}, {lower.get_signature()}",
    }
    return samples, notes


def corpus_sample(counts: Counts, metric: MetricFunction) -> Sample:
    """Return the sample of a corpus-level metric from 0 to 100."""
    return Sample(counts=counts, metric=metric, unit="points", link=LOGIT_POINTS, averaged=False)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Return tokens separated by spaces, by the steps of Multi30k's preprocessing script."""
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), escape=False, return_str=True)
        for line in lines
    ]


def bleu_counts(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str) -> Counts:
    """Return word counts of hypothesis and reference, then matches and totals by order."""
    # effective_order avoids a warning per sentence; it does not affect the counts.
    metric = BLEU(tokenize=tokenize, effective_order=True)
    scores = (
        metric.sentence_score(hypothesis, [reference])
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    rows = [(score.sys_len, score.ref_len, *score.counts, *score.totals) for score in scores]
    return np.array(rows, dtype=np.float64)


def bleu(sums: Sums, *, smooth: bool = True) -> Scores:
    """Return BLEU; 0 if no word matches or, without smoothing, if an order has no match."""
    matches, totals = np.hsplit(sums[:, 2:], 2)
    smoothed = np.where(matches > 0, matches, 0.5 ** np.cumsum(matches == 0, axis=1))
    precisions = np.divide(smoothed, totals, out=np.ones_like(totals), where=totals > 0)
    hypothesis, reference = sums[:, 0], sums[:, 1]
    ratio = np.divide(reference, hypothesis, out=np.ones_like(hypothesis), where=hypothesis > 0)
    points: Scores = 100 * np.exp(np.minimum(0, 1 - ratio) + np.log(precisions).mean(axis=1))
    is_matched = matches[:, 0] > 0 if smooth else (matches > 0).all(axis=1)
    return np.where(is_matched & (totals > 0).all(axis=1), points, 0.0)


def chrf_counts(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
    """Return n-gram counts of hypothesis and reference, and matches, by order."""
    rows = []
    for pair in zip(hypotheses, references, strict=True):
        ngrams = (extract_all_char_ngrams(text, CHRF.CHAR_ORDER) for text in pair)
        row = []
        for found, expected in zip(*ngrams, strict=True):
            # An order that is too long for the reference does not count against the hypothesis.
            row += [found.total() if expected else 0, expected.total(), (found & expected).total()]
        rows.append(row)
    return np.array(rows, dtype=np.float64)


def chrf(sums: Sums) -> Scores:
    """Return chrF over the orders that occur in both hypotheses and references."""
    hypothesis, reference, matches = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    present = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(present.sum(axis=1), 1)
    precision, recall = (
        np.divide(matches, totals, out=np.zeros_like(totals), where=present).sum(axis=1) / orders
        for totals in (hypothesis, reference)
    )
    weight = CHRF.BETA**2  # of recall, relative to precision
    numerator, denominator = 100 * (1 + weight) * precision * recall, weight * precision + recall
    zeros = np.zeros_like(denominator)
    points: Scores = np.divide(numerator, denominator, out=zeros, where=denominator > 0)
    return points
