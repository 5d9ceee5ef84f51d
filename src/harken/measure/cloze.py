"""Metrics of filled blanks, by a model or by n-gram counts.

    accuracy        share of blanks whose most probable word is the true one
    top5_accuracy   share whose true word is among the five most probable
    nats            mean of -log P(true word); perplexity is its exponential

Lines are the independent examples, not the words of a line.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from harken.batch.ragged import Numbers, Ragged, ragged_indices
from harken.measure.interval import LOG_LOG, LOGIT, Sample, ratio
from harken.measure.ngrams import Trigrams, sides_of

BEST = 5


class ClozePredictions(NamedTuple):
    """The most probable words of each blank, their log-probabilities and that of the true word."""

    words: Int[np.ndarray, "blanks best"]
    logs: Float[np.ndarray, "blanks best"]
    true_logs: Float[np.ndarray, "blanks"]


def ngram_predictions(
    trigrams: Trigrams, lines: Ragged, chosen: Numbers, first_word: int
) -> tuple[ClozePredictions, ClozePredictions]:
    """Predict by word frequency alone, and by the two neighbors on each side.

    Numbers below `first_word` are special tokens, which are no answers.
    """
    truth, unigram = lines.values[chosen], trigrams.alone()

    def best_of(probabilities: Float[np.ndarray, "V"], true: int) -> tuple[int, float, float]:
        best = first_word + int(probabilities[first_word:].argmax())
        return best, probabilities[best], probabilities[true]

    def predictions(rows: list[tuple[int, float, float]]) -> ClozePredictions:
        best, probability, true = (np.array(part) for part in zip(*rows, strict=True))
        return ClozePredictions(best[:, None], np.log(probability)[:, None], np.log(true))

    sides = sides_of(lines, chosen, trigrams.end).tolist()
    return (
        predictions([best_of(unigram, true) for true in truth]),
        predictions(
            [best_of(trigrams.blank(*around), t) for t, around in zip(truth, sides, strict=True)]
        ),
    )


class ClozeMetrics:
    """Samples over the lines that have any blank."""

    def __init__(self, lines: Ragged, chosen: Numbers) -> None:
        owner, _ = ragged_indices(lines.lengths)
        self._line, self._lines = owner[chosen], len(lines.lengths)
        self._counted = np.bincount(self._line, minlength=self._lines)
        self.true = lines.values[chosen]

    def accuracy(self, filled: ClozePredictions) -> Sample:
        return Sample(counts=self._counts(filled.words[:, 0] == self.true), link=LOGIT)

    def top5_accuracy(self, filled: ClozePredictions) -> Sample:
        right = (filled.words[:, :BEST] == self.true[:, None]).any(axis=1)
        return Sample(counts=self._counts(right), link=LOGIT)

    def nats(self, filled: ClozePredictions) -> Sample:
        return Sample(counts=self._counts(-filled.true_logs), unit="nats")

    def perplexity(self, filled: ClozePredictions) -> Sample:
        counts = self._counts(-filled.true_logs)
        return Sample(counts=counts, figure=exp_ratio, unit="perplexity", link=LOG_LOG)

    def _counts(self, values: np.ndarray) -> Float[np.ndarray, "lines 2"]:
        sums = np.bincount(self._line, weights=values, minlength=self._lines)
        return np.stack((sums, self._counted), axis=1)[self._counted > 0]


def exp_ratio(sums: Float[np.ndarray, "rows 2"]) -> Float[np.ndarray, "rows"]:
    """Return exp of the first sum over the second."""
    perplexities: np.ndarray = np.exp(ratio(sums))
    return perplexities
