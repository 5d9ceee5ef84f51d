"""Properties of vocabularies of every kind."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.encode.subwords import (
    BytePairConfig,
    CharactersConfig,
    TokenizerConfig,
    UnigramConfig,
    WholeWordsConfig,
    WordsConfig,
)
from harken.encode.vocabulary import END, MASK, PAD, SPECIAL, UNKNOWN, Vocabulary
from harken.errors import Failure

# The names of special tokens also occur in texts.
CORPUS = [
    "Ada Lovelace was born in London, and London was large.",
    "Where was Ada born?  In London.",
    "<mask> stands for a hole, <end> for the end, <0x41> for a byte.",
    "naïve café, 東京, 𝕊𝕊𝕊, 1815",
] * 5
CONFIGS: dict[str, TokenizerConfig] = {
    "characters": CharactersConfig(),
    "words": WordsConfig(vocab_size=23),
    "bpe": BytePairConfig(vocab_size=307),
    "unigram": UnigramConfig(vocab_size=307),
}
each_kind = pytest.mark.parametrize("kind", CONFIGS)

# Any characters at all, and pieces that a tokenizer might take for more than text.
ODD = [
    *("<mask>", "<pad>", "<end>", "<unknown>", "<0x41>", "<0xFF>", "Ġ", "Ċ", "▁", "London", "ï"),
    *(" ", "  ", "\n", "\r\n", "\t", "\0", "\x1b", "\ufeff", "\u2028", "e\u0301", "'s", "\ufffd"),
    "👩\u200d🚀",
]
texts = st.text() | st.lists(st.sampled_from(ODD) | st.text(max_size=3), max_size=9).map("".join)


@cache
def fitted(kind: str) -> Vocabulary:
    return CONFIGS[kind].fit(CORPUS)


def tokens_of(vocabulary: Vocabulary, text: str) -> list[int]:
    (tokens,) = vocabulary.encode([text])
    return tokens.tolist()


@each_kind
@given(text=texts)
def test_round_trip_of_texts(kind: str, text: str) -> None:
    vocabulary = fitted(kind)
    tokens = tokens_of(vocabulary, text)
    assert vocabulary.decode([tokens]) == [text]
    # And nothing in a text can pass for a special token.
    assert all(token > END for token in tokens)
    assert all(token < len(vocabulary) for token in tokens)


@each_kind
@given(several=st.lists(texts, max_size=5))
def test_texts_are_encoded_independently(kind: str, several: list[str]) -> None:
    vocabulary = fitted(kind)
    encoded = vocabulary.encode(several)
    assert [tokens.dtype for tokens in encoded] == [np.int64] * len(several)
    assert [tokens.tolist() for tokens in encoded] == [tokens_of(vocabulary, t) for t in several]
    assert vocabulary.decode([tokens.tolist() for tokens in encoded]) == several


@each_kind
def test_special_tokens_come_first(kind: str) -> None:
    vocabulary = fitted(kind)
    assert (PAD, UNKNOWN, MASK, END) == (0, 1, 2, 3)
    assert SPECIAL == ("<pad>", "<unknown>", "<mask>", "<end>")
    assert vocabulary.token_texts([0, 1, 2, 3]) == list(SPECIAL)
    london = tokens_of(vocabulary, "London")
    assert vocabulary.decode([[MASK, *london, END, PAD, PAD]]) == ["London"]


@each_kind
def test_a_word_has_the_same_tokens_everywhere(kind: str) -> None:
    vocabulary = fitted(kind)
    answer = tokens_of(vocabulary, "London")
    sentence = tokens_of(vocabulary, "She was born in London")
    assert sentence[-len(answer) :] == answer
    assert sentence[: -len(answer)] == tokens_of(vocabulary, "She was born in")


@each_kind
def test_pieces_join_to_the_text(kind: str) -> None:
    vocabulary = fitted(kind)
    text = "London, 1815 (London)\n"
    assert "".join(vocabulary.token_texts(tokens_of(vocabulary, text))) == f" {text}"
    halves = vocabulary.token_texts(tokens_of(vocabulary, "ж"))  # in bytes: the corpus has none
    assert len(halves) > 1
    assert not any("�" in piece or piece == "" for piece in halves)


@pytest.mark.parametrize("kind", [*CONFIGS, "whole_words"])
def test_a_stored_vocabulary_is_the_same(kind: str, tmp_path: Path) -> None:
    vocabulary = WholeWordsConfig().fit(CORPUS) if kind == "whole_words" else fitted(kind)
    path = tmp_path / "tokenizer.json"
    path.write_text(vocabulary.to_json(), encoding="utf-8")
    loaded = Vocabulary.load(path)
    every = range(len(vocabulary))
    assert len(loaded) == len(vocabulary)
    assert loaded.token_texts(every) == vocabulary.token_texts(every)
    several = [*CORPUS, *ODD, ""]
    for mine, theirs in zip(loaded.encode(several), vocabulary.encode(several), strict=True):
        assert mine.tolist() == theirs.tolist()
        assert loaded.decode([mine.tolist()]) == vocabulary.decode([theirs.tolist()])


WHOLE = WordsConfig(vocab_size=3).fit(CORPUS).to_json().encode()
DAMAGED = [b"null", b"[]", b"{}", b"\xff\xfe", b'{"model": {}}', b"", WHOLE[:99], WHOLE[:-99]]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_a_failure(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(Failure, match="expected the file that the run wrote") as caught:
        Vocabulary.load(path)
    assert str(path) in str(caught.value)
