"""Metrics of blanks by hand, and predictions by n-gram counts."""

import math

import numpy as np
import pytest

from harken.batch.ragged import ragged
from harken.measure.cloze import ClozeMetrics, ClozePredictions, Trigrams, ngram_predictions

FIRST_WORD, UNKNOWN, END = 4, 1, 3
# Three lines; the second has no blank.
LINES = ragged([np.array(line) for line in ([4, 5, 6, 7], [8, 9], [5, 4, 1])])
CHOSEN = np.array([0, 1, 3, 6, 8])  # 4, 5, 7 of the first line, 5 and <unknown> of the third
FILLED = ClozePredictions(
    words=np.array(
        [[4, 9, 8, 7, 6], [4, 5, 8, 7, 6], [9, 8, 6, 5, 4], [5, 4, 6, 7, 8], [4, 5, 6, 7, 8]]
    ),
    logs=np.full((5, 5), -2.0),
    true_logs=np.log([0.5, 0.25, 0.1, 0.8, 0.02]),
)


def test_figures() -> None:
    metrics = ClozeMetrics(LINES, CHOSEN)
    assert metrics.accuracy(FILLED).counts.tolist() == [[1, 3], [1, 2]]
    assert metrics.accuracy(FILLED, 5).counts.tolist() == [[2, 3], [1, 2]]
    assert metrics.accuracy(FILLED).value == pytest.approx(2 / 5)
    nats = -sum(math.log(probability) for probability in (0.5, 0.25, 0.1, 0.8, 0.02)) / 5
    assert metrics.loss(FILLED, "nats").value == pytest.approx(nats)
    assert metrics.loss(FILLED, "perplexity").value == pytest.approx(math.exp(nats))
    assert (metrics.loss(FILLED, "nats").unit, metrics.loss(FILLED, "perplexity").unit) == (
        "nats",
        "perplexity",
    )
    low, high = (
        metrics.loss(FILLED, "perplexity").estimate().low,
        metrics.loss(FILLED, "perplexity").estimate().high,
    )
    assert low < math.exp(nats) < high


def test_only_the_five_most_probable_count() -> None:
    six = FILLED._replace(words=np.array([[9, 8, 7, 6, 5, 4]] * 5))
    assert ClozeMetrics(LINES, CHOSEN).accuracy(six, 5).counts.tolist() == [[2, 3], [1, 2]]


def test_counts_fill_blanks() -> None:
    training = ragged([np.array([4, 5, 6])] * 3 + [np.array([7, 1, 1])] * 5 + [np.array([4, 8, 9])])
    trigrams = Trigrams(training, 11, end=END, impossible=(0, 2))
    lines = ragged([np.array([4, 5, 6]), np.array([7, 1, 9])])
    chosen = np.array([1, 4])
    alone, in_context = ngram_predictions(trigrams, lines, chosen, FIRST_WORD)
    # 7 occurs five times; <unknown> is not an answer.
    assert alone.words.tolist() == [[7], [7]]
    np.testing.assert_allclose(np.exp(alone.true_logs), trigrams.alone()[[5, UNKNOWN]])
    assert in_context.words[0].tolist() == [5]
    assert in_context.words[1, 0] >= FIRST_WORD
    for number, sides in enumerate([(END, 4, 6, END), (END, 7, 9, END)]):
        expected = trigrams.blank(*sides)
        true = (5, UNKNOWN)[number]
        assert math.exp(in_context.true_logs[number]) == pytest.approx(expected[true])
        best = math.exp(in_context.logs[number, 0])
        assert best == pytest.approx(expected[FIRST_WORD:].max())
    assert trigrams.blank(END, 7, 9, END).argmax() == UNKNOWN
