"""Texts as streams: nothing is lost, nothing is added, and pieces have the tokens of the whole."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.encode.stream import Stream, stretches
from harken.encode.subwords import (
    BytePairConfig,
    CharactersConfig,
    TokenizerConfig,
    UnigramConfig,
    WordsConfig,
)
from harken.encode.vocabulary import END, SPECIAL, Vocabulary

SAMPLE = [
    "What's done, is done. It's 1606!\n\nMACBETH:\nTo-morrow, and to-morrow  and to-morrow,\n",
    "creeps in this petty pace from day to day (to the last syllable) - héllo 語語",
]
UNITS: list[TokenizerConfig] = [
    CharactersConfig(),
    WordsConfig(vocab_size=20),
    BytePairConfig(vocab_size=300),
    UnigramConfig(vocab_size=300),
]
VOCABULARIES: dict[str, Vocabulary] = {units.kind: units.fit(SAMPLE * 3) for units in UNITS}
every_unit = pytest.mark.parametrize("kind", VOCABULARIES)
# Words, marks and white space of all kinds, so that cuts fall beside each of them.
texts = st.lists(
    st.sampled_from(
        ["to", "morrow", "'s", ".", ",", "(", "7", "-", "é", "語", "☃", "\x1c", "\u3000"]
        + [" "] * 6
        + ["  ", "\n", "\t", "\r", "\u00a0"]
    ),
    min_size=1,
    max_size=40,
).map("".join)


@given(texts, st.integers(0, 20))
def test_stretches_are_the_text_without_the_spaces_they_are_cut_at(text: str, size: int) -> None:
    pieces = stretches(text, size)
    assert " ".join(pieces) == text
    assert all(len(piece) >= size for piece in pieces[:-1])
    assert all(re.match(r"\S", piece) for piece in pieces[1:])
    assert all(re.search(r"\S$", piece) for piece in pieces[:-1])


def test_stretches_are_not_longer_than_a_word_more() -> None:
    pieces = stretches("four word text here " * 100, 50)
    assert len(pieces) > 30
    assert max(map(len, pieces)) < 55


@every_unit
@given(text=texts, size=st.integers(0, 20))
def test_stretches_have_the_tokens_of_the_whole(kind: str, text: str, size: int) -> None:
    stream = Stream(VOCABULARIES[kind], "file")
    assert stream.join(stream.encode(stretches(text, size))).tolist() == (
        stream.join(stream.encode([text])).tolist()
    )


@given(texts)
def test_a_stream_of_characters_is_the_characters(text: str) -> None:
    vocabulary = CharactersConfig().fit([text, "\n"])
    stream = Stream(vocabulary, "file")
    start, *tokens = stream.join(stream.encode(stretches(text, 5))).tolist()
    assert vocabulary.pieces([start]) == ["\n"]
    assert "".join(vocabulary.pieces(tokens)) == text
    assert len(tokens) == len(text) == stream.contents(stretches(text, 5))[:, 1].sum()


def test_lines_stand_between_ends() -> None:
    vocabulary = CharactersConfig().fit(["ab", " c"])
    stream = Stream(vocabulary, "lines")
    (one, other), both = vocabulary.encode(["a", "b"]), vocabulary.encode(["c"])[0]
    tokens = stream.join(stream.encode(["ab", " c"])).tolist()
    space = both[0]
    assert tokens == [END, one[1], other[1], END, space, both[1], END]
    assert stream.contents(["ab", " c"]).tolist() == [[1, 3], [1, 3]]


@every_unit
def test_a_line_begins_as_a_word_does(kind: str) -> None:
    """Only a space that is a token by itself is taken away."""
    vocabulary = VOCABULARIES[kind]
    (tokens,) = Stream(vocabulary, "lines").encode(["to-morrow"])
    pieces = vocabulary.pieces(tokens.tolist())
    assert pieces[-1] == SPECIAL[END]
    assert "".join(pieces[:-1]) == ("to-morrow" if kind == "characters" else " to-morrow")


@given(texts, st.integers(0, 20))
def test_contents_sum_to_the_words_and_characters_of_the_text(text: str, size: int) -> None:
    contents = Stream(VOCABULARIES["bpe"], "file").contents(stretches(text, size))
    assert contents.sum(axis=0).tolist() == [len(text.split()), len(text)]


@every_unit
@pytest.mark.parametrize("documents", ["file", "lines"])
def test_a_prompt_is_continued_by_what_follows_it(kind: str, documents: str) -> None:
    stream = Stream(VOCABULARIES[kind], documents)
    text = "to-morrow and to-morrow, in this petty  pace"
    whole = stream.prompt(text)
    assert whole[0] == stream.start
    for cut in range(2, len(whole) + 1):
        (after,) = stream.continuations(whole[:cut], [whole[cut:].tolist()])
        assert text.endswith(after)
        (before,) = stream.vocabulary.decode([whole[:cut].tolist()])
        assert before.removeprefix("\n").lstrip(" ") + after == text


@every_unit
@pytest.mark.parametrize("documents", ["file", "lines"])
@pytest.mark.parametrize("text", ["", "☃ ünknown \U0001f600", " ", "<end>", "\x00"])
def test_any_prompt_can_be_encoded(kind: str, documents: str, text: str) -> None:
    stream = Stream(VOCABULARIES[kind], documents)
    tokens = stream.prompt(text)
    assert tokens[0] == stream.start
    assert len(tokens) > 1 or not text.strip()
    assert (tokens[1:] >= len(SPECIAL)).all()
