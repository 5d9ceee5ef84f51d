"""What each kind of fit is for."""

import subprocess
import sys
from ast import literal_eval
from dataclasses import fields

import pytest

from harken.encode import subwords
from harken.encode.subwords import (
    BytePairConfig,
    CharactersConfig,
    TokenizerConfig,
    UnigramConfig,
    WordsConfig,
)
from harken.encode.vocabulary import Vocabulary

# Sizes of the special tokens and of the bytes, which every vocabulary has.
SPECIAL_AND_BYTES = 4 + 256
# Many words of equal count: an order taken from a hash table would vary.
CORPUS = [f"{a}{b}{c} {c}{b}{a}" for a in "bdgkl" for b in "aeiou" for c in "mnprt"]

REPEATABLE: list[TokenizerConfig] = [
    CharactersConfig(),
    WordsConfig(vocab_size=31),
    BytePairConfig(vocab_size=331),
]


def pieces_of(vocabulary: Vocabulary, text: str) -> list[str]:
    (tokens,) = vocabulary.encode([text])
    return vocabulary.token_texts(tokens.tolist())


def test_a_fit_is_the_same_in_another_process() -> None:
    program = (
        "from harken.encode.subwords import *\n"
        f"print(ascii([config.fit({CORPUS!r}).to_json() for config in {REPEATABLE!r}]))"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert literal_eval(printed) == [config.fit(iter(CORPUS)).to_json() for config in REPEATABLE]


def test_characters() -> None:
    vocabulary = CharactersConfig().fit(["abba", "cab é"])
    assert len(vocabulary) == SPECIAL_AND_BYTES + len(" abcé")
    assert pieces_of(vocabulary, "bé a") == [" ", "b", "é", " ", "a"]
    assert len(pieces_of(vocabulary, "ж")) == 1 + 2  # a space and two bytes


def test_rare_characters_are_encoded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subwords, "MAX_CHARACTERS", 3)
    # The space counts once; `é` is the rarest of the others.
    assert len(CharactersConfig().fit(["  bbaé"])) == SPECIAL_AND_BYTES + 3
    assert len(pieces_of(CharactersConfig().fit(["  bbaé"]), "baé")) == 3 + 2


def test_words() -> None:
    vocabulary = WordsConfig(vocab_size=2).fit(["born in Rome", "in Rome, in May"])
    # ` in` three times and ` Rome` twice; then the letters, the space and the comma.
    assert len(vocabulary) == SPECIAL_AND_BYTES + 2 + len(set("born in Rome, May"))
    assert pieces_of(vocabulary, "in Rome") == [" in", " Rome"]
    assert pieces_of(vocabulary, "May") == [" ", "M", "a", "y"]


def test_ties_are_broken_by_the_alphabet() -> None:
    for texts in (["b a c"], ["c b a"], ["a c b"]):
        assert pieces_of(WordsConfig(vocab_size=2).fit(texts), "a b c") == [" a", " b", " ", "c"]


def test_words_are_split_at_marks() -> None:
    vocabulary = WordsConfig(vocab_size=97).fit(["Ada's (own) 1815, ok."])
    cut = [" Ada", "'", "s", " (", "own", ")", " 1815", ",", " ok", "."]
    assert pieces_of(vocabulary, "Ada's (own) 1815, ok.") == cut


def test_frequent_byte_pairs_are_merged() -> None:
    texts = ["the cat the hat the bat"] * 3
    assert pieces_of(BytePairConfig(vocab_size=260).fit(texts), "the") == [" ", "t", "h", "e"]
    assert pieces_of(BytePairConfig(vocab_size=270).fit(texts), "the") == [" the"]


@pytest.mark.parametrize("config", [BytePairConfig, UnigramConfig])
def test_vocabulary_sizes(config: type[BytePairConfig] | type[UnigramConfig]) -> None:
    (limits,) = (field.metadata for field in fields(config) if field.name == "vocab_size")
    for size in (limits["at_least"], 283, 307):
        assert len(config(vocab_size=size).fit(CORPUS)) == size
    assert len(config(vocab_size=2000).fit(CORPUS)) < 2000  # the corpus has fewer


def test_unigram_pieces_are_longer_than_letters() -> None:
    vocabulary = UnigramConfig(vocab_size=2000).fit(CORPUS)
    pieces = [piece for text in CORPUS for piece in pieces_of(vocabulary, text)]
    assert len(pieces) < 0.75 * len("".join(pieces))


@pytest.mark.parametrize(
    "config", [*REPEATABLE, UnigramConfig(vocab_size=307)], ids=lambda config: config.kind
)
@pytest.mark.parametrize("texts", [[], [""], ["x"]], ids=["none", "empty", "one letter"])
def test_the_smallest_corpora(config: TokenizerConfig, texts: list[str]) -> None:
    vocabulary = config.fit(texts)
    (tokens,) = vocabulary.encode(["any text: żółw"])
    assert vocabulary.decode([tokens.tolist()]) == ["any text: żółw"]
