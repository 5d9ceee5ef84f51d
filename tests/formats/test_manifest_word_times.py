"""Every stretch says what it holds, when it holds it; what has no times stays as it was."""

from pathlib import Path

import pytest

from harken.formats.examples import SpokenWord, Utterance
from harken.formats.manifest import split_at_words, with_word_times

WORDS = (SpokenWord("no", 0.5, 1.0), SpokenWord("yes", 1.25, 2.0), SpokenWord("no", 2.0, 2.5))
WHOLE = Utterance(Path("a.wav"), "no yes no", "ann", start=3.0, end=7.0, words=WORDS)


def test_each_word_comes_first_once() -> None:
    parts = list(split_at_words(WHOLE))
    assert [one.text for one in parts] == ["no yes no", "yes no", "no"]
    assert [one.start for one in parts] == [3.0, 4.25, 5.0]
    assert {(one.audio, one.speaker, one.end) for one in parts} == {(Path("a.wav"), "ann", 7.0)}
    for part in parts:  # a word is said at the same second of the file, wherever its part begins
        said = [(one.word, part.start + one.start, part.start + one.end) for one in part.words]
        assert said == [(one.word, 3 + one.start, 3 + one.end) for one in WORDS][-len(said) :]


@pytest.mark.parametrize("words", [(), WORDS[:2]])
def test_without_the_times_of_all_words_it_stays_whole(words: tuple[SpokenWord, ...]) -> None:
    one = Utterance(Path("a.wav"), "no yes no", words=words)
    assert list(split_at_words(one)) == [one]


def test_times_are_taken_only_for_what_is_said() -> None:
    bare = Utterance(Path("a.wav"), "no yes no")
    assert with_word_times([bare], [WORDS])[0].words == WORDS
    assert with_word_times([bare], [WORDS[:2]]) == [bare], "other words were heard"
    assert with_word_times([WHOLE], [WORDS[:2]]) == [WHOLE], "it has times of its own"
