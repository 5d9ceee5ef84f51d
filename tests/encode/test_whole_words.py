"""Whole words: split like other vocabularies, without spaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from harken.encode.subwords import WORDS, WholeWordsConfig, split_words
from harken.encode.vocabulary import PAD, SPECIAL, UNKNOWN

ANY = st.text(st.characters(exclude_categories=["Cs"]))
# To Python these are white space, to the tokenizer letters of words.
ODD = "\x1c\x1d\x1e\x1f"
USUAL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=ODD))
# Texts of few words, marks and spaces, so that words meet again.
LIKELY = st.text("ab1é (,.)\t_<>　")


def words_of(text: str) -> list[str]:
    return [word.text for word in split_words(text)]


def test_words_have_no_spaces() -> None:
    cut = ["Ada", "'", "s", "(", "own", ")", "1815", ",", "ok", "."]
    assert words_of(" Ada's  (own) 1815, ok.") == cut


@given(USUAL | LIKELY)
def test_words_are_split_as_in_other_vocabularies(text: str) -> None:
    others = pre_tokenizers.Split(Regex(WORDS), "isolated").pre_tokenize_str(text)
    assert "".join(words_of(text)) == "".join("".join(piece.split()) for piece, _ in others)
    if text == text.strip() and len(text.split()) == 1:
        assert words_of(text) == [piece for piece, _ in others]


@given(USUAL | LIKELY)
def test_positions_of_words(text: str) -> None:
    words = split_words(text)
    assert all(text[word.start : word.stop] == word.text for word in words)
    assert all(word.text.split() == [word.text] for word in words)
    assert bool(words) == bool(text.strip())


def test_rare_words_are_unknown() -> None:
    texts = ["a b a c", "c a d e e e"]
    vocabulary = WholeWordsConfig(min_count=2).fit(texts)
    assert vocabulary.token_texts(range(len(vocabulary))) == [*SPECIAL, "a", "e", "c"]
    (tokens,) = vocabulary.encode(["a b c d e"])
    assert tokens.tolist() == [4, UNKNOWN, 6, UNKNOWN, 5]
    assert len(WholeWordsConfig(min_count=1).fit(texts)) == 4 + 5
    assert len(WholeWordsConfig(min_count=1, vocab_size=2).fit(texts)) == 4 + 2


@given(st.lists(LIKELY, max_size=5), ANY | LIKELY, st.integers(1, 3))
def test_every_word_has_a_token(texts: list[str], text: str, min_count: int) -> None:
    config = WholeWordsConfig(min_count=min_count)
    vocabulary = config.fit(texts)
    (tokens,) = vocabulary.encode([text])
    pieces = vocabulary.token_texts(tokens.tolist())
    for piece, word, token in zip(pieces, words_of(text), tokens, strict=True):
        known = sum(words_of(other).count(word) for other in texts) >= min_count
        assert (piece == word) if known else (token == UNKNOWN)
    assert config.has_frequent_word(iter(texts)) == (len(vocabulary) > len(SPECIAL))


def test_special_tokens_in_a_text_are_text() -> None:
    vocabulary = WholeWordsConfig(min_count=1).fit(["the <mask> of <pad>"])
    (tokens,) = vocabulary.encode(["<mask><pad>"])
    assert vocabulary.token_texts(tokens.tolist()) == ["<", "mask", ">", "<", "pad", ">"]
    assert PAD not in tokens


@pytest.mark.parametrize("texts", [[], [""], ["x"]])
def test_the_smallest_corpora(texts: list[str]) -> None:
    vocabulary = WholeWordsConfig(min_count=2).fit(texts)
    assert vocabulary.encode(["any text"])[0].tolist() == [UNKNOWN, UNKNOWN]
