"""Figures of filled blanks, by a model or by counts: what was guessed and what stood there.

    accuracy     share of blanks whose likeliest word is the true one
    five_best    share whose true word is among the five likeliest
    nats         mean of -log P(true word), perplexity its exponential

Lines are the independent examples: words of one line are not.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from harken.batch.ragged import Numbers, Ragged, places
from harken.measure.interval import LOG_LOG, LOGIT, Sample, ratio
from harken.measure.ngrams import Trigrams, sides_of

BEST = 5


class ClozePredictions(NamedTuple):
    """For each blank the likeliest words, and the log-probability of them and of the true one."""

    words: Int[np.ndarray, "blanks best"]
    logs: Float[np.ndarray, "blanks best"]
    true_logs: Float[np.ndarray, "blanks"]


def ngram_predictions(
    trigrams: Trigrams, lines: Ragged, chosen: Numbers, first_word: int
) -> tuple[ClozePredictions, ClozePredictions]:
    """(by how common each word is, by its two neighbours on each side).

    Numbers below `first_word` are symbols that are no answers.
    """
    alone, beside = [], []
    usual = trigrams.alone()
    sides = sides_of(lines, chosen, trigrams.end).tolist()
    for true, around in zip(lines.values[chosen], sides, strict=True):
        alone.append(_best_of(usual, true, first_word))
        beside.append(_best_of(trigrams.blank(*around), true, first_word))
    return _filled(alone), _filled(beside)


def _best_of(
    probabilities: Float[np.ndarray, "V"], true: int, first_word: int
) -> tuple[int, float, float]:
    best = first_word + int(probabilities[first_word:].argmax())
    return best, probabilities[best], probabilities[true]


def _filled(found: list[tuple[int, float, float]]) -> ClozePredictions:
    best, probability, true = (np.array(part) for part in zip(*found, strict=True))
    return ClozePredictions(best[:, None], np.log(probability)[:, None], np.log(true))


class ClozeMetrics:
    """Sums over the blanks of each line that has any."""

    def __init__(self, lines: Ragged, chosen: Numbers) -> None:
        owner, _ = places(lines.lengths)
        self._line = owner[chosen]
        self._lines = len(lines.lengths)
        self._counted = np.bincount(self._line, minlength=self._lines)
        self.true = lines.values[chosen]

    def accuracy(self, filled: ClozePredictions) -> Sample:
        right = filled.words[:, 0] == self.true
        return Sample(counts=self._beside_counted(right), link=LOGIT)

    def top5_accuracy(self, filled: ClozePredictions) -> Sample:
        found = (filled.words[:, :BEST] == self.true[:, None]).any(axis=1)
        return Sample(counts=self._beside_counted(found), link=LOGIT)

    def nats(self, filled: ClozePredictions) -> Sample:
        return Sample(counts=self._beside_counted(-filled.true_logs), unit="nats")

    def perplexity(self, filled: ClozePredictions) -> Sample:
        return Sample(
            counts=self._beside_counted(-filled.true_logs),
            figure=exponential,
            unit="perplexity",
            link=LOG_LOG,
        )

    def _beside_counted(self, values: np.ndarray) -> Float[np.ndarray, "lines 2"]:
        sums = np.bincount(self._line, weights=values, minlength=self._lines)
        return np.stack((sums, self._counted), axis=1)[self._counted > 0]


def exponential(sums: Float[np.ndarray, "rows 2"]) -> Float[np.ndarray, "rows"]:
    """Of the mean."""
    perplexities: np.ndarray = np.exp(ratio(sums))
    return perplexities
