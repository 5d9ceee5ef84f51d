"""Metrics of cloze predictions, and a baseline: trigrams with Witten-Bell smoothing.

    p(w)         = (c(w) + T / V) / (c + T)                        T distinct words
    p(w | v)     = (c(v w) + T(v) p(w)) / (c(v) + T(v))            T(v) distinct words follow v
    p(w | u v)   = (c(u v w) + T(u v) p(w | v)) / (c(u v) + T(u v))

A line is read as `end end w0 … wn end`. The probability of a word in a blank is

    P(w | a b _ c d)  =  p(w | a b) p(c | b w) p(d | w c)  /  the sum over all words

If c is the end of the line, the last factor is constant. Most words never occur next to b or c and
share the back-off; only the others are computed individually. The independent examples of metrics
are lines, not blanks.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from harken.batch.ragged import IntArray, Ragged, ragged_indices
from harken.measure.interval import LOGIT, Sample
from harken.measure.perplexity import LossUnit, loss_sample

BEST = 5  # words to predict, for the top-5 accuracy

Reals = Float[np.ndarray, "_count"]


class SortedCounts(NamedTuple):
    """Sorted distinct keys, and how often each occurs."""

    keys: IntArray
    times: IntArray

    def of(self, keys: IntArray) -> IntArray:
        """Return the counts of these keys, 0 for unseen ones."""
        indices, known = self.find(keys)
        return np.where(known, self.times[indices], 0)

    def find(self, keys: IntArray) -> tuple[IntArray, Bool[np.ndarray, "_count"]]:
        """Return the index of each key, and whether it was seen."""
        indices = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
        return indices, self.keys[indices] == keys

    def after(self, prefix: int, symbols: int) -> "SortedCounts":
        """Return the counts of the last symbols of keys that begin with `prefix`."""
        low = prefix * symbols
        first, last = self.keys.searchsorted((low, low + symbols))
        return SortedCounts(self.keys[first:last] - low, self.times[first:last])


def count_keys(keys: IntArray) -> SortedCounts:
    """Count each distinct key."""
    return SortedCounts(*np.unique(keys, return_counts=True))


class Trigrams:
    """Trigram counts of at least one line, and the counts of lower orders."""

    def __init__(
        self, lines: Ragged, symbols: int, *, end: int, impossible: Sequence[int] = ()
    ) -> None:
        """Count `lines`, whose words are below `symbols`, and neither `end` nor `impossible`."""
        assert symbols**3 < 1 << 63, "three words must fit into one number"
        self.symbols, self.end = symbols, end
        first, second, third = triples(lines, end)
        self.threes = count_keys((first * symbols + second) * symbols + third)
        self.twos = count_keys(second * symbols + third)
        self.backwards = count_keys(third * symbols + second)  # the same pairs, by their second
        # How many words, and how many distinct words, follow a word or a pair.
        self.total = np.bincount(second, minlength=symbols)
        self.kinds = np.bincount(self.twos.keys // symbols, minlength=symbols)
        self.pairs = count_keys(first * symbols + second)
        self.pair_kinds = count_keys(self.threes.keys // symbols).times  # of the same pairs
        self.back_off = interpolate(0, self.total, self.kinds, np.ones(symbols))  # of new pairs
        possible = np.ones(symbols)
        possible[list(impossible)] = 0.0
        seen = np.bincount(third, minlength=symbols)
        row = SortedCounts(np.flatnonzero(seen), seen[seen > 0])
        self.unigram = interpolate_all(row, possible / possible.sum())

    def bigram(self, before: IntArray, words: IntArray) -> Reals:
        """Return p(w | v) of corresponding pairs; arrays of length 1 are broadcast."""
        seen = self.twos.of(before * self.symbols + words)
        return interpolate(seen, self.total[before], self.kinds[before], self.unigram[words])

    def trigram(self, first: IntArray, second: IntArray, words: IntArray) -> Reals:
        """Return p(w | u v) of corresponding triples."""
        pairs = first * self.symbols + second
        seen = self.threes.of(pairs * self.symbols + words)
        indices, known = self.pairs.find(pairs)
        total, kinds = np.where(known, (self.pairs.times[indices], self.pair_kinds[indices]), 0)
        return interpolate(seen, total, kinds, self.bigram(second, words))

    def following(self, first: int, second: int) -> Reals:
        """Return p(w | u v) of every word w."""
        after_one = interpolate_all(self.twos.after(second, self.symbols), self.unigram)
        pair = first * self.symbols + second
        return interpolate_all(self.threes.after(pair, self.symbols), after_one)

    def alone(self) -> Reals:
        """Return P(w) of a blank without context."""
        return self._normalized(self.unigram.copy())

    def blank(self, a: int, b: int, c: int, d: int) -> Reals:
        """Return P(w | a b _ c d) of every word w."""
        weights = self.following(a, b)
        c_, d_ = np.array([c]), np.array([d])
        before_c = self.backwards.after(c, self.symbols).keys
        after_b = self.twos.after(b, self.symbols).keys
        next_word = self.back_off * self.unigram[c]
        next_word[before_c] = self.bigram(before_c, c_)
        next_word[after_b] = self.trigram(np.array([b]), after_b, c_)
        weights *= next_word
        weights[before_c] *= self.trigram(before_c, c_, d_) / self.bigram(c_, d_)
        return self._normalized(weights)

    def _normalized(self, weights: Reals) -> Reals:
        weights[self.end] = 0.0
        weights /= weights.sum()
        return weights


def interpolate(seen: IntArray | int, total: IntArray, kinds: IntArray, below: Reals) -> Reals:
    """Return (c + T p) / (total + T), or the order below if nothing follows."""
    mass = total + kinds
    return np.where(mass > 0, (seen + kinds * below) / np.maximum(mass, 1), below)


def interpolate_all(row: SortedCounts, below: Reals) -> Reals:
    """Return the same for every word, from the counts of the words that follow."""
    if len(row.keys) == 0:
        return below.copy()
    probabilities = len(row.keys) * below
    probabilities[row.keys] += row.times
    probabilities /= row.times.sum() + len(row.keys)
    return probabilities


def triples(lines: Ragged, end: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return all trigrams of `end end w0 … wn end`."""
    _, index = ragged_indices(lines.lengths + 1)
    words = np.insert(lines.values, np.cumsum(lines.lengths), end)
    # The end of the previous line is the second `end` before a line.
    return np.where(index > 0, np.roll(words, 2), end), np.roll(words, 1), words


def context_words(lines: Ragged, chosen: IntArray, end: int) -> Integer[np.ndarray, "blanks 4"]:
    """Return the two words before and after each of these flat indices; `end` outside its line."""
    owner, index = ragged_indices(lines.lengths)
    steps = np.array([-2, -1, 1, 2])
    neighbors = index[chosen, None] + steps
    is_inside = (neighbors >= 0) & (neighbors < lines.lengths[owner[chosen], None])
    return np.where(is_inside, lines.values[(chosen[:, None] + steps) % len(lines.values)], end)


class ClozePredictions(NamedTuple):
    """The most probable words of each blank, their log-probabilities and that of the true word."""

    words: Int[np.ndarray, "blanks best"]
    logs: Float[np.ndarray, "blanks best"]
    true_logs: Float[np.ndarray, "blanks"]


def ngram_predictions(
    trigrams: Trigrams, lines: Ragged, chosen: IntArray, first_word: int
) -> tuple[ClozePredictions, ClozePredictions]:
    """Predict words from `first_word` on, by frequency and by the two neighbors on each side."""
    contexts = context_words(lines, chosen, trigrams.end).tolist()

    def predict(distributions: Iterable[Float[np.ndarray, "V"]]) -> ClozePredictions:
        rows = []
        for probabilities, true in zip(distributions, lines.values[chosen], strict=True):
            best = first_word + int(probabilities[first_word:].argmax())
            rows.append((best, probabilities[best], probabilities[true]))
        words, best_probabilities, true_probabilities = map(np.array, zip(*rows, strict=True))
        logs, true_logs = np.log(best_probabilities), np.log(true_probabilities)
        return ClozePredictions(words[:, None], logs[:, None], true_logs)

    unigram = predict([trigrams.alone()] * len(contexts))
    return unigram, predict(trigrams.blank(*context) for context in contexts)


class ClozeMetrics:
    """Metrics of predictions, as samples over the lines that have a blank."""

    def __init__(self, lines: Ragged, chosen: IntArray) -> None:
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
