"""Counts of neighbouring words as a language model: what a network must beat.

    p(w)         = (c(w) + T / V) / (c + T)                        T kinds of words were seen
    p(w | v)     = (c(v w) + T(v) p(w)) / (c(v) + T(v))            T(v) kinds of words follow v
    p(w | u v)   = (c(u v w) + T(u v) p(w | v)) / (c(u v) + T(u v))

Each order is mixed with the one below by Witten and Bell's weights: the more kinds of words were
seen to follow, the likelier is a new one. A line is read as `end end w0 … wn end`.

For a blank between a b and c d both sides count, by each factor that w takes part in:

    P(w | a b _ c d)  =  p(w | a b) p(c | b w) p(d | w c)  /  the sum of that over all words

Where c is the end of the line nothing follows it, and the last factor is the same for all words.
It is done over all words at once: most were never seen beside b or c and share their back-off; the
few others are set to their own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer

from harken.batch.ragged import Numbers, Ragged, places

Reals = Float[np.ndarray, "_count"]


class Counts(NamedTuple):
    """How often each of the sorted keys was seen."""

    keys: Numbers
    times: Numbers

    def of(self, keys: Numbers) -> Numbers:
        """Of these, zero where never."""
        at, known = self.find(keys)
        return np.where(known, self.times[at], 0)

    def find(self, keys: Numbers) -> tuple[Numbers, Bool[np.ndarray, "_count"]]:
        """(where each stands, whether it is there at all)."""
        at = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
        return at, self.keys[at] == keys

    def after(self, prefix: int, symbols: int) -> "Counts":
        """Of the last symbols of the keys that begin with `prefix`."""
        low = prefix * symbols
        first, last = self.keys.searchsorted((low, low + symbols))
        return Counts(self.keys[first:last] - low, self.times[first:last])


def counts_of(keys: Numbers) -> Counts:
    """Of all that occur."""
    return Counts(*np.unique(keys, return_counts=True))


class Trigrams:
    """Counts of three words in a row and of what they are made of; at least one line is needed."""

    def __init__(
        self, lines: Ragged, symbols: int, *, end: int, impossible: Sequence[int] = ()
    ) -> None:
        """Words are numbers below `symbols`; `end` and what is `impossible` is in no line."""
        assert symbols**3 < 1 << 63, "three words must fit into one number"
        self.symbols, self.end = symbols, end
        first, second, third = triples(lines, end)
        self.threes = counts_of((first * symbols + second) * symbols + third)
        self.twos = counts_of(second * symbols + third)
        self.backwards = counts_of(third * symbols + second)  # the same pairs, by their second
        # What followed a word or a pair: how many, and how many kinds.
        self.total = np.bincount(second, minlength=symbols)
        self.kinds = np.bincount(self.twos.keys // symbols, minlength=symbols)
        self.pairs = counts_of(first * symbols + second)
        self.pair_kinds = counts_of(self.threes.keys // symbols).times  # of the same pairs
        self.back_off = mixed(0, self.total, self.kinds, np.ones(symbols))  # of a new pair v w
        possible = np.ones(symbols)
        possible[list(impossible)] = 0.0
        seen = np.bincount(third, minlength=symbols)
        row = Counts(np.flatnonzero(seen), seen[seen > 0])
        self.unigram = spread(row, possible / possible.sum())

    def bigram(self, before: Numbers, words: Numbers) -> Reals:
        """p(w | v) of pairs side by side; one number of either stands for many."""
        seen = self.twos.of(before * self.symbols + words)
        return mixed(seen, self.total[before], self.kinds[before], self.unigram[words])

    def trigram(self, first: Numbers, second: Numbers, words: Numbers) -> Reals:
        """p(w | u v) of triples side by side."""
        pairs = first * self.symbols + second
        seen = self.threes.of(pairs * self.symbols + words)
        at, known = self.pairs.find(pairs)
        total, kinds = np.where(known, (self.pairs.times[at], self.pair_kinds[at]), 0)
        return mixed(seen, total, kinds, self.bigram(second, words))

    def following(self, first: int, second: int) -> Reals:
        """p(w | u v) of every word w."""
        after_one = spread(self.twos.after(second, self.symbols), self.unigram)
        pair = first * self.symbols + second
        return spread(self.threes.after(pair, self.symbols), after_one)

    def alone(self) -> Reals:
        """P(w) of a blank, whatever stands around it."""
        return self._normalised(self.unigram)

    def blank(self, a: int, b: int, c: int, d: int) -> Reals:
        """P(w | a b _ c d) of every word w."""
        weights = self.following(a, b)
        c_, d_ = np.array([c]), np.array([d])
        before_c = self.backwards.after(c, self.symbols).keys
        after_b = self.twos.after(b, self.symbols).keys
        next_word = self.back_off * self.unigram[c]
        next_word[before_c] = self.bigram(before_c, c_)
        next_word[after_b] = self.trigram(np.array([b]), after_b, c_)
        weights *= next_word
        weights[before_c] *= self.trigram(before_c, c_, d_) / self.bigram(c_, d_)
        return self._normalised(weights)

    def _normalised(self, weights: Reals) -> Reals:
        words = weights.copy()
        words[self.end] = 0.0
        words /= words.sum()
        return words


def mixed(seen: Numbers | int, total: Numbers, kinds: Numbers, below: Reals) -> Reals:
    """(c + T p) / (total + T); the order below alone where nothing was seen to follow."""
    room = total + kinds
    return np.where(room > 0, (seen + kinds * below) / np.maximum(room, 1), below)


def spread(row: Counts, below: Reals) -> Reals:
    """The same of every word, from the row of those seen to follow."""
    if len(row.keys) == 0:
        return below.copy()
    probabilities = len(row.keys) * below
    probabilities[row.keys] += row.times
    probabilities /= row.times.sum() + len(row.keys)
    return probabilities


def triples(lines: Ragged, end: int) -> tuple[Numbers, Numbers, Numbers]:
    """All three words in a row of `end end w0 … wn end`."""
    _, place = places(lines.lengths + 1)
    words = np.insert(lines.values, np.cumsum(lines.lengths), end)
    # The end of the line before stands where the first end of a line would; the second is put in.
    return np.where(place > 0, np.roll(words, 2), end), np.roll(words, 1), words


def sides_of(lines: Ragged, chosen: Numbers, end: int) -> Integer[np.ndarray, "blanks 4"]:
    """(a, b, c, d) around each of these flat places; `end` beyond the edges of its line."""
    owner, place = places(lines.lengths)
    steps = np.array([-2, -1, 1, 2])
    at = place[chosen, None] + steps
    inside = (at >= 0) & (at < lines.lengths[owner[chosen], None])
    return np.where(inside, lines.values[(chosen[:, None] + steps) % len(lines.values)], end)
