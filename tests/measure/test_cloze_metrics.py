"""Trigrams against counts in dictionaries, and cloze metrics by hand."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.batch.ragged import ragged
from harken.measure.cloze import (
    ClozeMetrics,
    ClozePredictions,
    Trigrams,
    context_words,
    ngram_predictions,
    triples,
)

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
    np.testing.assert_allclose(trigrams.trigram_all(u, v), triples, rtol=1e-12)
    for distribution in (trigrams.unigram, pairs, triples):
        assert distribution.sum() == pytest.approx(1.0)
        assert (distribution[list(IMPOSSIBLE)] == 0).all()


@given(LINES, SIDE, SIDE, SIDE, SIDE)
@settings(max_examples=150)
def test_a_blank_agrees_with_trying_every_word(
    lines: list[list[int]], a: int, b: int, c: int, d: int
) -> None:
    result, expected = trigrams_of(lines).predict_blank(a, b, c, d), Slow(lines).blank(a, b, c, d)
    np.testing.assert_allclose(result[WORDS], [expected[word] for word in WORDS], rtol=1e-10)
    assert result.sum() == pytest.approx(1.0)
    assert (result[[END, *IMPOSSIBLE]] == 0).all()


@given(LINES)
def test_unigram_prediction_is_the_relative_frequency(lines: list[list[int]]) -> None:
    slow, result = Slow(lines), trigrams_of(lines).predict_unigram()
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


FIRST_WORD, UNKNOWN = 4, 1
# Three lines; the second has no blank.
DEV = ragged([np.array(line) for line in ([4, 5, 6, 7], [8, 9], [5, 4, 1])])
CHOSEN = np.array([0, 1, 3, 6, 8])  # 4, 5, 7 of the first line, 5 and <unknown> of the third
FILLED = ClozePredictions(
    words=np.array(
        [[4, 9, 8, 7, 6], [4, 5, 8, 7, 6], [9, 8, 6, 5, 4], [5, 4, 6, 7, 8], [4, 5, 6, 7, 8]]
    ),
    log_probs=np.full((5, 5), -2.0),
    true_log_probs=np.log([0.5, 0.25, 0.1, 0.8, 0.02]),
)


def test_figures() -> None:
    metrics = ClozeMetrics(DEV, CHOSEN)
    assert metrics.accuracy(FILLED).counts.tolist() == [[1, 3], [1, 2]]
    assert metrics.accuracy(FILLED, 5).counts.tolist() == [[2, 3], [1, 2]]
    assert metrics.accuracy(FILLED).value == pytest.approx(2 / 5)
    nats = -sum(math.log(probability) for probability in (0.5, 0.25, 0.1, 0.8, 0.02)) / 5
    assert metrics.loss(FILLED, "nats").value == pytest.approx(nats)
    assert metrics.loss(FILLED, "perplexity").value == pytest.approx(math.exp(nats))
    assert [metrics.loss(FILLED, unit).unit for unit in ("nats", "perplexity")] == [
        "nats",
        "perplexity",
    ]
    estimate = metrics.loss(FILLED, "perplexity").estimate()
    assert estimate.low < math.exp(nats) < estimate.high


def test_only_the_five_most_probable_count() -> None:
    six = FILLED._replace(words=np.array([[9, 8, 7, 6, 5, 4]] * 5))
    assert ClozeMetrics(DEV, CHOSEN).accuracy(six, 5).counts.tolist() == [[2, 3], [1, 2]]


def test_counts_fill_blanks() -> None:
    training = ragged([np.array([4, 5, 6])] * 3 + [np.array([7, 1, 1])] * 5 + [np.array([4, 8, 9])])
    trigrams = Trigrams(training, 11, end=END, impossible=(0, 2))
    lines = ragged([np.array([4, 5, 6]), np.array([7, 1, 9])])
    chosen = np.array([1, 4])
    alone, in_context = ngram_predictions(trigrams, lines, chosen, FIRST_WORD)
    # 7 occurs five times; <unknown> is not an answer.
    assert alone.words.tolist() == [[7], [7]]
    expected = trigrams.predict_unigram()[[5, UNKNOWN]]
    np.testing.assert_allclose(np.exp(alone.true_log_probs), expected)
    assert in_context.words[0].tolist() == [5]
    assert in_context.words[1, 0] >= FIRST_WORD
    for number, sides in enumerate([(END, 4, 6, END), (END, 7, 9, END)]):
        expected = trigrams.predict_blank(*sides)
        true = (5, UNKNOWN)[number]
        assert math.exp(in_context.true_log_probs[number]) == pytest.approx(expected[true])
        best = math.exp(in_context.log_probs[number, 0])
        assert best == pytest.approx(expected[FIRST_WORD:].max())
    assert trigrams.predict_blank(END, 7, 9, END).argmax() == UNKNOWN
