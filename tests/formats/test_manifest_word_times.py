from pathlib import Path

import pytest

from harken.formats.examples import SpokenWord, Utterance
from harken.formats.manifest import split_at_words, with_word_times

WORDS = (SpokenWord("no", 0.5, 1.0), SpokenWord("yes", 1.25, 2.0), SpokenWord("no", 2.0, 2.5))
WHOLE = Utterance(Path("a.wav"), "no yes no", "ann", start=3.0, end=7.0, words=WORDS)


def test_suffixes_keep_the_times_in_the_file() -> None:
    suffixes = list(split_at_words(WHOLE))
    assert [suffix.text for suffix in suffixes] == ["no yes no", "yes no", "no"]
    assert [suffix.start for suffix in suffixes] == [3.0, 4.25, 5.0]
    in_file = [(word.word, 3 + word.start, 3 + word.end) for word in WORDS]
    for suffix in suffixes:
        assert (suffix.audio, suffix.speaker, suffix.end) == (Path("a.wav"), "ann", 7.0)
        times = [
            (word.word, suffix.start + word.start, suffix.start + word.end) for word in suffix.words
        ]
        assert times == in_file[-len(times) :]


@pytest.mark.parametrize("words", [(), WORDS[:2]])
def test_utterances_without_all_word_times_stay_whole(words: tuple[SpokenWord, ...]) -> None:
    utterance = Utterance(Path("a.wav"), "no yes no", words=words)
    assert list(split_at_words(utterance)) == [utterance]


def test_predicted_word_times() -> None:
    untimed = Utterance(Path("a.wav"), "no yes no")
    assert with_word_times([untimed], [WORDS])[0].words == WORDS
    assert with_word_times([untimed], [WORDS[:2]]) == [untimed], "other words were predicted"
    assert with_word_times([WHOLE], [WORDS[:2]]) == [WHOLE], "it has word times already"
