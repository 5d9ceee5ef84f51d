"""Times of words against numbers by hand."""

import pytest

from harken.formats.examples import SpokenWord
from harken.measure.edit_distance import align_texts, matched_words
from harken.measure.interval import Estimate
from harken.measure.word_times import attention_in_words, time_error

WORDS = (SpokenWord("one", 0.0, 0.4), SpokenWord("two", 0.5, 0.9), SpokenWord("three", 1.0, 1.6))


def test_only_equal_words_are_correct() -> None:
    (steps,) = align_texts(["one to three four"], ["one two three"], units="words")
    assert matched_words(steps) == [(0, 0), (2, 2)]
    (steps,) = align_texts(["two three"], ["one two three"], units="words")
    assert matched_words(steps) == [(1, 0), (2, 1)]
    (steps,) = align_texts(["so one two three"], ["one two three"], units="words")
    assert matched_words(steps) == [(0, 1), (1, 2), (2, 3)]


def test_the_error_is_between_middles_and_over_all_sentences() -> None:
    output = (
        SpokenWord("one", 0.1, 0.5),
        SpokenWord("to", 0.5, 0.9),
        SpokenWord("three", 1.0, 1.2),
    )
    steps = align_texts(["one to three", "five"], ["one two three", "five"], units="words")
    sample = time_error([WORDS, ()], [output, (SpokenWord("five", 0.0, 1.0),)], steps)
    # 0.3 for 0.2, 1.1 for 1.3; `to` is wrong, and `five` has no true time.
    assert sample.value == pytest.approx((0.1 + 0.2) / 2)
    assert sample.unit == "seconds"
    assert sample.counts[:, 1].tolist() == [2, 0]


def test_without_a_right_word_there_is_no_error() -> None:
    steps = align_texts([""], ["one two three"], units="words")
    assert time_error([WORDS], [()], steps).estimate() == Estimate(None, None, None, "seconds", 0)
    assert attention_in_words([WORDS], [()], steps).estimate() == Estimate(
        None, None, None, "share", 0
    )


def test_attended_are_counted_for_symbols_of_correct_words() -> None:
    steps = align_texts(["one to three"], ["one two three"], units="words")
    attended = [(0, 0.1), (0, 0.399), (0, 0.4), (1, 0.6), (2, 1.0), (2, 0.99)]
    sample = attention_in_words([WORDS], [attended], steps)
    # 0.4 is where `one` has ended, 0.99 is before `three`; `to` does not count.
    assert sample.counts.tolist() == [[3.0, 5.0]]
