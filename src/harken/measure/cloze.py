"""Metrics of cloze predictions, and a baseline: trigrams with Witten-Bell smoothing.

    p(w)         = (n(w) + T / V) / (N + T)                        T distinct words
    p(w | v)     = (n(v w) + T(v) p(w)) / (n(v) + T(v))            T(v) distinct words follow v
    p(w | u v)   = (n(u v w) + T(u v) p(w | v)) / (n(u v) + T(u v))

where n(…) counts an n-gram, N is the number of words and V that of possible words. A line is read
as `end end w1 w2 … end`. The probability of a word in a blank is

    P(w | a b _ c d)  =  p(w | a b) p(c | b w) p(d | w c)  /  the sum over all words

If c is the end of the line, the last factor is constant. Most words never occur next to b or c:
their factors are the backed-off ones, computed for all of them at once. The independent examples of
metrics are lines, not blanks.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from harken.batch.ragged import IntArray, Ragged, ragged_indices
from harken.measure.interval import LOGIT, Sample
from harken.measure.perplexity import LossUnit, loss_sample

BEST = 5  # most probable words that are kept per blank, for the top-5 accuracy

Reals = Float[np.ndarray, "_count"]


class SortedCounts(NamedTuple):
    """Sorted distinct keys, and how often each occurs."""

    keys: IntArray
    counts: IntArray

    def lookup(self, keys: IntArray) -> IntArray:
        """Return the counts of these keys, 0 for unseen ones."""
        indices, known = self.find(keys)
        return np.where(known, self.counts[indices], 0)

    def find(self, keys: IntArray) -> tuple[IntArray, Bool[np.ndarray, "_count"]]:
        """Return the index of each key, and whether it was seen."""
        indices = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
        return indices, self.keys[indices] == keys

    def with_prefix(self, prefix: int, vocabulary: int) -> "SortedCounts":
        """Return the counts of the last words of n-grams that begin with the n-gram `prefix`."""
        low = prefix * vocabulary
        first, last = self.keys.searchsorted((low, low + vocabulary))
        return SortedCounts(self.keys[first:last] - low, self.counts[first:last])


def count_keys(keys: IntArray) -> SortedCounts:
    """Count each distinct key."""
    return SortedCounts(*np.unique(keys, return_counts=True))


class Trigrams:
    """Trigram counts of at least one line, and the counts of lower orders."""

    def __init__(
        self, lines: Ragged, vocabulary: int, *, end: int, impossible: Sequence[int] = ()
    ) -> None:
        """Count `lines`, whose words are below `vocabulary`, and neither `end` nor `impossible`."""
        assert vocabulary**3 < 1 << 63, "a trigram must fit into 64 bits"
        self.vocabulary, self.end = vocabulary, end
        first, second, third = triples(lines, end)
        self.trigrams = count_keys((first * vocabulary + second) * vocabulary + third)
        self.bigrams = count_keys(second * vocabulary + third)
        self.reversed = count_keys(third * vocabulary + second)  # bigrams by their second word
        # Numbers of words and of distinct words that follow a word or a pair.
        self.total = np.bincount(second, minlength=vocabulary)
        self.distinct = np.bincount(self.bigrams.keys // vocabulary, minlength=vocabulary)
        self.pairs = count_keys(first * vocabulary + second)
        self.pair_distinct = count_keys(self.trigrams.keys // vocabulary).counts  # by pair
        # p(w | v) / p(w) of a word w that never follows v
        self.back_off = interpolate(0, self.total, self.distinct, np.ones(vocabulary))
        possible = np.ones(vocabulary)
        possible[list(impossible)] = 0.0
        self.unigram = interpolate_all(count_keys(third), possible / possible.sum())

    def bigram(self, before: IntArray, words: IntArray) -> Reals:
        """Return p(w | v) of corresponding pairs; arrays of length 1 are broadcast."""
        counts = self.bigrams.lookup(before * self.vocabulary + words)
        return interpolate(counts, self.total[before], self.distinct[before], self.unigram[words])

    def trigram(self, first: IntArray, second: IntArray, words: IntArray) -> Reals:
        """Return p(w | u v) of corresponding triples."""
        pairs = first * self.vocabulary + second
        counts = self.trigrams.lookup(pairs * self.vocabulary + words)
        indices, known = self.pairs.find(pairs)
        following = self.pairs.counts[indices], self.pair_distinct[indices]
        total, distinct = np.where(known, following, 0)
        return interpolate(counts, total, distinct, self.bigram(second, words))

    def trigram_all(self, first: int, second: int) -> Reals:
        """Return p(w | u v) of every word w."""
        bigram = interpolate_all(self.bigrams.with_prefix(second, self.vocabulary), self.unigram)
        pair = first * self.vocabulary + second
        return interpolate_all(self.trigrams.with_prefix(pair, self.vocabulary), bigram)

    def predict_unigram(self) -> Reals:
        """Return P(w) of a blank without context."""
        return self._normalized(self.unigram.copy())

    def predict_blank(self, a: int, b: int, c: int, d: int) -> Reals:
        """Return P(w | a b _ c d) of every word w."""
        weights = self.trigram_all(a, b)
        c_, d_ = np.array([c]), np.array([d])
        before_c = self.reversed.with_prefix(c, self.vocabulary).keys
        after_b = self.bigrams.with_prefix(b, self.vocabulary).keys
        p_c = self.back_off * self.unigram[c]
        p_c[before_c] = self.bigram(before_c, c_)
        p_c[after_b] = self.trigram(np.array([b]), after_b, c_)
        weights *= p_c
        weights[before_c] *= self.trigram(before_c, c_, d_) / self.bigram(c_, d_)
        return self._normalized(weights)

    def _normalized(self, weights: Reals) -> Reals:
        weights[self.end] = 0.0
        weights /= weights.sum()
        return weights


def interpolate(counts: IntArray | int, total: IntArray, distinct: IntArray, lower: Reals) -> Reals:
    """Return (c + T p) / (total + T), where p is the lower order; p itself if nothing follows."""
    mass = total + distinct
    return np.where(mass > 0, (counts + distinct * lower) / np.maximum(mass, 1), lower)


def interpolate_all(following: SortedCounts, lower: Reals) -> Reals:
    """Return `interpolate` for every word, from the counts of the words that follow."""
    if len(following.keys) == 0:
        return lower.copy()
    probabilities = len(following.keys) * lower
    probabilities[following.keys] += following.counts
    probabilities /= following.counts.sum() + len(following.keys)
    return probabilities


def triples(lines: Ragged, end: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return all trigrams of `end end w1 w2 … end`."""
    _, index = ragged_indices(lines.lengths + 1)
    words = np.insert(lines.values, np.cumsum(lines.lengths), end)
    # The end of the previous line is the second `end` before a line.
    return np.where(index > 0, np.roll(words, 2), end), np.roll(words, 1), words


def context_words(lines: Ragged, chosen: IntArray, end: int) -> Integer[np.ndarray, "blanks 4"]:
    """Return two words before and two after each flat index; `end` outside of the line."""
    owner, index = ragged_indices(lines.lengths)
    steps = np.array([-2, -1, 1, 2])
    neighbors = index[chosen, None] + steps
    is_inside = (neighbors >= 0) & (neighbors < lines.lengths[owner[chosen], None])
    return np.where(is_inside, lines.values[(chosen[:, None] + steps) % len(lines.values)], end)


class ClozePredictions(NamedTuple):
    """The most probable words of each blank, their log-probabilities and that of the true word."""

    words: Int[np.ndarray, "blanks best"]
    log_probs: Float[np.ndarray, "blanks best"]
    true_log_probs: Float[np.ndarray, "blanks"]


def ngram_predictions(
    trigrams: Trigrams, lines: Ragged, chosen: IntArray, first_word: int
) -> tuple[ClozePredictions, ClozePredictions]:
    """Predict blanks by unigrams and by trigrams, without special tokens (below `first_word`)."""
    contexts = context_words(lines, chosen, trigrams.end).tolist()

    def predict(distributions: Iterable[Float[np.ndarray, "V"]]) -> ClozePredictions:
        rows = []
        for probabilities, true in zip(distributions, lines.values[chosen], strict=True):
            best = first_word + int(probabilities[first_word:].argmax())
            rows.append((best, probabilities[best], probabilities[true]))
        words, best_probabilities, true_probabilities = map(np.array, zip(*rows, strict=True))
        log_probs, true_log_probs = np.log(best_probabilities), np.log(true_probabilities)
        return ClozePredictions(words[:, None], log_probs[:, None], true_log_probs)

    unigram = predict([trigrams.predict_unigram()] * len(contexts))
    return unigram, predict(trigrams.predict_blank(*context) for context in contexts)


class ClozeMetrics:
    """Metrics of predictions, as samples over the lines that have a blank."""

    def __init__(self, lines: Ragged, chosen: IntArray) -> None:
        owner, _ = ragged_indices(lines.lengths)
        self._line_of_blank = owner[chosen]
        self._blanks = np.bincount(self._line_of_blank, minlength=len(lines.lengths))
        self._true = lines.values[chosen]

    def accuracy(self, predictions: ClozePredictions, top: int = 1) -> Sample:
        """Return the share of blanks whose true word is among the `top` most probable ones."""
        right = (predictions.words[:, :top] == self._true[:, None]).any(axis=1)
        return Sample(counts=self._counts(right), link=LOGIT)

    def loss(self, predictions: ClozePredictions, unit: LossUnit) -> Sample:
        """Return the mean of -log P(true word), or its exponential."""
        nats, blanks = self._counts(-predictions.true_log_probs).T
        return loss_sample(nats, blanks, unit, ordered=False)

    def _counts(self, values: np.ndarray) -> Float[np.ndarray, "lines 2"]:
        sums = np.bincount(self._line_of_blank, values, minlength=len(self._blanks))
        return np.stack((sums, self._blanks), axis=1)[self._blanks > 0]
