"""Counts by index arithmetic against counts in dictionaries."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.batch.ragged import ragged
from harken.measure.cloze import Trigrams, context_words, triples

# Words are 1, 4, 5, … as in a vocabulary whose 0 and 2 never occur; 3 is the end of lines.
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
    for distribution in (trigrams.unigram, pairs, triples):
        assert distribution.sum() == pytest.approx(1.0)
        assert (distribution[list(IMPOSSIBLE)] == 0).all()


@given(LINES, SIDE, SIDE, SIDE, SIDE)
@settings(max_examples=150)
def test_a_blank_agrees_with_trying_every_word(
    lines: list[list[int]], a: int, b: int, c: int, d: int
) -> None:
    result, expected = trigrams_of(lines).blank(a, b, c, d), Slow(lines).blank(a, b, c, d)
    np.testing.assert_allclose(result[WORDS], [expected[word] for word in WORDS], rtol=1e-10)
    assert result.sum() == pytest.approx(1.0)
    assert (result[[END, *IMPOSSIBLE]] == 0).all()


@given(LINES)
def test_alone_is_how_common_a_word_is(lines: list[list[int]]) -> None:
    slow, result = Slow(lines), trigrams_of(lines).alone()
    total = sum(slow.p(word) for word in WORDS)
    np.testing.assert_allclose(result[WORDS], [slow.p(word) / total for word in WORDS], rtol=1e-12)
    assert (result[[END, *IMPOSSIBLE]] == 0).all()


@given(LINES)
def test_triples_and_sides(lines: list[list[int]]) -> None:
    numbers = ragged([np.array(line, dtype=np.int64) for line in lines])
    expected = []
    around = []
    for line in lines:
        padded = [END, END, *line, END, END]
        expected += [tuple(padded[place : place + 3]) for place in range(len(line) + 1)]
        around += [[padded[place + step] for step in (0, 1, 3, 4)] for place in range(len(line))]
    result = [tuple(triple) for triple in np.stack(triples(numbers, END), axis=1).tolist()]
    assert result == expected
    chosen = np.arange(len(around))
    assert context_words(numbers, chosen, END).tolist() == around
    assert context_words(numbers, chosen[::2], END).tolist() == around[::2]
