"""Counts by index arithmetic against counts in dictionaries."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.batch.ragged import ragged
from harken.measure.ngrams import Trigrams, sides_of, triples

# Words are 1, 4, 5, … as in a vocabulary whose 0 and 2 never stand in a text; 3 ends a line.
SYMBOLS, END, IMPOSSIBLE = 11, 3, (0, 2)
WORDS = [1, *range(4, SYMBOLS)]
POSSIBLE = [END, *WORDS]
LINES = st.lists(st.lists(st.sampled_from(WORDS[:5]), max_size=7), min_size=1, max_size=6)
SIDE = st.sampled_from([*WORDS, END])


class Slow:
    """The formulas of the module's docstring, word by word."""

    def __init__(self, lines: list[list[int]]) -> None:
        self.follow: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for line in lines:
            padded = [END, END, *line, END]
            for first, second, third in zip(padded, padded[1:], padded[2:], strict=False):
                for context in ((), (second,), (first, second)):
                    self.follow[context][third] += 1

    def p(self, word: int, *context: int) -> float:
        seen = self.follow.get(context, Counter())
        if context:
            below = self.p(word, *context[1:])
        else:
            below = 1 / len(POSSIBLE) if word in POSSIBLE else 0.0
        if not seen:
            return below
        return (seen[word] + len(seen) * below) / (seen.total() + len(seen))

    def blank(self, a: int, b: int, c: int, d: int) -> dict[int, float]:
        weights = {
            word: self.p(word, a, b) * self.p(c, b, word) * (1 if c == END else self.p(d, word, c))
            for word in WORDS
        }
        return {word: weight / sum(weights.values()) for word, weight in weights.items()}


def trigrams_of(lines: list[list[int]]) -> Trigrams:
    numbers = ragged([np.array(line, dtype=np.int64) for line in lines])
    return Trigrams(numbers, SYMBOLS, end=END, impossible=IMPOSSIBLE)


def test_numbers_by_hand() -> None:
    """Two lines: `4 5` and `4 6`, so c(end end 4) = 2, c(end 4 5) = c(end 4 6) = 1."""
    trigrams = trigrams_of([[4, 5], [4, 6]])
    # Six symbols seen (4 4 5 6 end end) of four kinds, nine possible.
    of_five = (1 + 4 / 9) / (6 + 4)
    assert trigrams.unigram[5] == pytest.approx(of_five)
    after_four = (1 + 2 * of_five) / (2 + 2)
    assert trigrams.bigram(np.array([4]), np.array([5])) == pytest.approx(after_four)
    after_both = (1 + 2 * after_four) / (2 + 2)
    found = trigrams.trigram(np.array([END]), np.array([4]), np.array([5]))
    assert found == pytest.approx(after_both)


@given(LINES, SIDE, SIDE)
@settings(max_examples=40)
def test_probabilities_agree_with_dictionaries(lines: list[list[int]], u: int, v: int) -> None:
    trigrams, slow, every = trigrams_of(lines), Slow(lines), np.arange(SYMBOLS)
    np.testing.assert_allclose(trigrams.unigram, [slow.p(w) for w in every], rtol=1e-12)
    pairs = trigrams.bigram(np.array([v]), every)
    np.testing.assert_allclose(pairs, [slow.p(w, v) for w in every], rtol=1e-12)
    triples = trigrams.trigram(np.array([u]), np.array([v]), every)
    np.testing.assert_allclose(triples, [slow.p(w, u, v) for w in every], rtol=1e-12)
    np.testing.assert_allclose(trigrams.following(u, v), triples, rtol=1e-12)
    for one in (trigrams.unigram, pairs, triples):
        assert one.sum() == pytest.approx(1.0)
        assert (one[list(IMPOSSIBLE)] == 0).all()


@given(LINES, SIDE, SIDE, SIDE, SIDE)
@settings(max_examples=150)
def test_a_blank_agrees_with_trying_every_word(
    lines: list[list[int]], a: int, b: int, c: int, d: int
) -> None:
    found, wanted = trigrams_of(lines).blank(a, b, c, d), Slow(lines).blank(a, b, c, d)
    np.testing.assert_allclose(found[WORDS], [wanted[word] for word in WORDS], rtol=1e-10)
    assert found.sum() == pytest.approx(1.0)
    assert (found[[END, *IMPOSSIBLE]] == 0).all()


@given(LINES)
def test_alone_is_how_common_a_word_is(lines: list[list[int]]) -> None:
    slow, found = Slow(lines), trigrams_of(lines).alone()
    total = sum(slow.p(word) for word in WORDS)
    np.testing.assert_allclose(found[WORDS], [slow.p(word) / total for word in WORDS], rtol=1e-12)
    assert (found[[END, *IMPOSSIBLE]] == 0).all()


def test_both_sides_tell_the_word() -> None:
    trigrams = trigrams_of([[4, 5, 6]] * 5 + [[7, 8, 6]] * 5 + [[4, 9, 10]] * 5)
    assert trigrams.blank(END, 4, 6, END).argmax() == 5  # the left alone says 5 or 9
    assert trigrams.blank(END, 4, 10, END).argmax() == 9
    assert trigrams.blank(END, 7, 6, END).argmax() == 8  # the right alone says 5 or 8


@given(LINES)
def test_triples_and_sides(lines: list[list[int]]) -> None:
    numbers = ragged([np.array(line, dtype=np.int64) for line in lines])
    wanted = []
    around = []
    for line in lines:
        padded = [END, END, *line, END, END]
        wanted += [tuple(padded[place : place + 3]) for place in range(len(line) + 1)]
        around += [[padded[place + step] for step in (0, 1, 3, 4)] for place in range(len(line))]
    found = [tuple(one) for one in np.stack(triples(numbers, END), axis=1).tolist()]
    assert found == wanted
    chosen = np.arange(len(around))
    assert sides_of(numbers, chosen, END).tolist() == around
    assert sides_of(numbers, chosen[::2], END).tolist() == around[::2]
