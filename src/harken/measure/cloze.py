"""Metrics of cloze predictions, and the predictions of n-gram baselines.

The independent examples are lines, not blanks.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from harken.batch.ragged import Numbers, Ragged, ragged_indices
from harken.measure.interval import LOGIT, Sample
from harken.measure.ngrams import Trigrams, sides_of
from harken.measure.perplexity import LossUnit, loss_sample

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

    Numbers below `first_word` are special tokens, which are never predicted.
    """
    unigram, sides = trigrams.alone(), sides_of(lines, chosen, trigrams.end).tolist()

    def predict(distributions: Iterable[Float[np.ndarray, "V"]]) -> ClozePredictions:
        rows = []
        for probabilities, true in zip(distributions, lines.values[chosen], strict=True):
            best = first_word + int(probabilities[first_word:].argmax())
            rows.append((best, probabilities[best], probabilities[true]))
        words, best_probabilities, true_probabilities = map(np.array, zip(*rows, strict=True))
        logs, true_logs = np.log(best_probabilities), np.log(true_probabilities)
        return ClozePredictions(words[:, None], logs[:, None], true_logs)

    return predict([unigram] * len(sides)), predict(trigrams.blank(*around) for around in sides)


class ClozeMetrics:
    """Metrics of predictions, as samples over the lines that have a blank."""

    def __init__(self, lines: Ragged, chosen: Numbers) -> None:
        owner, _ = ragged_indices(lines.lengths)
        self._line, self._lines = owner[chosen], len(lines.lengths)
        self._blanks = np.bincount(self._line, minlength=self._lines)
        self._true = lines.values[chosen]

    def accuracy(self, predictions: ClozePredictions, top: int = 1) -> Sample:
        """Return the share of blanks whose true word is among the `top` most probable ones."""
        right = (predictions.words[:, :top] == self._true[:, None]).any(axis=1)
        return Sample(counts=self._counts(right), link=LOGIT)

    def loss(self, predictions: ClozePredictions, unit: LossUnit) -> Sample:
        """Return the mean of -log P(true word), or its exponential."""
        nats, blanks = self._counts(-predictions.true_logs).T
        return loss_sample(nats, blanks, unit, ordered=False)

    def _counts(self, values: np.ndarray) -> Float[np.ndarray, "lines 2"]:
        sums = np.bincount(self._line, weights=values, minlength=self._lines)
        return np.stack((sums, self._blanks), axis=1)[self._blanks > 0]
