"""BLEU and chrF of translations with intervals; each sentence has one reference.

`bleu` is sacrebleu's value for raw text. `bleu_moses` is what papers on Multi30k report: lower
case, normalized punctuation, Moses tokens. They differ by a point or more.
"""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from harken.measure.bleu import CHRF_BETA, bleu, chrf, corpus_sample
from harken.measure.interval import Counts, Sample


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
        "chrf": f"chrF{CHRF_BETA} of raw text, {CHRF(references=empty).get_signature()}",
        "bleu_moses": "BLEU as in papers on Multi30k: lower-cased, punctuation normalized, Moses "
        f"tokens for {language!r}, {lower.get_signature()}",
    }
    return samples, notes


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
