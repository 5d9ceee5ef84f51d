"""Rows and spellings of known and unknown words, and the stored vocabulary."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.encode.vocabulary import PAD, UNKNOWN
from harken.encode.words import END_CHARACTERS, WordVocabulary, WordVocabularyConfig
from harken.errors import Failure
from harken.formats.examples import Sentence

SENTENCES = [
    Sentence(("The", "bank", "the", "bank"), ("DET", "NOUN", "DET", "NOUN")),
    Sentence(("Banks", "bank", "the", "money"), ("NOUN", "VERB", "DET", "NOUN")),
    Sentence(("THE", "end"), ("DET", "VERB")),
]
SPECIAL = {PAD, UNKNOWN}


def fitted(least: int = 1, lower: bool = True) -> WordVocabulary:
    return WordVocabularyConfig(min_count=least, lowercase=lower).fit(SENTENCES)


def row(words: WordVocabulary, word: str) -> int:
    return int(words.encode([[word]]).rows[0][0])


def test_case_is_in_the_spelling_only() -> None:
    words = fitted()
    encoded = words.encode([["The", "the"], ["THE"]])
    assert {int(row) for rows in encoded.rows for row in rows} == {words.rows["the"]}
    assert [forms.tolist() for forms in encoded.forms] == [[0, 1], [2]]
    assert len({tuple(letters.tolist()) for letters in encoded.spellings}) == 3


def test_rows_with_case() -> None:
    words = fitted(lower=False)
    assert len({row(words, "The"), row(words, "the"), row(words, "THE")} - SPECIAL) == 3
    assert row(words, "Bank") == UNKNOWN


def test_rows_of_frequent_words() -> None:
    """Counted without case: `the` occurs four times in three forms."""
    assert sorted(fitted(least=3).rows) == ["bank", "the"]
    assert sorted(fitted(least=3, lower=False).rows) == ["bank"]
    words = fitted(least=4)
    assert sorted(words.rows) == ["the"]
    assert row(words, "bank") == UNKNOWN
    assert words.statistics["bank"].occurrences == 3
    assert len(words) == 3


def test_row_counts_sum_over_forms() -> None:
    words = fitted()
    counts = words.row_counts
    occurrences = Counter(word.lower() for sentence in SENTENCES for word in sentence.words)
    assert len(counts) == len(words)
    assert {word: counts[number] for word, number in words.rows.items()} == occurrences
    assert counts[[PAD, UNKNOWN]].tolist() == [0, 0]


def test_most_frequent_tags() -> None:
    words = fitted()
    assert words.tags == ("DET", "NOUN", "VERB")
    assert words.likely_tag("bank") == "NOUN"  # twice, VERB once
    assert words.likely_tag("end") == "VERB"
    assert words.likely_tag("Bank") == "DET"  # of DET and NOUN, both four times, the first


def test_unknown_characters() -> None:
    words = fitted()
    encoded = words.encode([["bažk", "日本"]])
    assert encoded.rows[0].tolist() == [UNKNOWN, UNKNOWN]
    known = words.characters
    assert encoded.spellings[0].tolist() == [known["b"], known["a"], UNKNOWN, known["k"]]
    assert encoded.spellings[1].tolist() == [UNKNOWN, UNKNOWN]
    assert not SPECIAL & set(known.values())


def test_the_ends_of_long_words_are_spelled() -> None:
    words = fitted()
    letter = words.characters
    within, beyond = (
        "b" * END_CHARACTERS + "a" * END_CHARACTERS,
        "b" * END_CHARACTERS + "nn" + "a" * END_CHARACTERS,
    )
    expected = [letter["b"]] * END_CHARACTERS + [letter["a"]] * END_CHARACTERS
    for word in (within, beyond, beyond * 1000):
        assert words.encode([[word]]).spellings[0].tolist() == expected
    assert len(words.encode([["b" * (2 * END_CHARACTERS + 1)]]).spellings[0]) == 2 * END_CHARACTERS


@given(st.lists(st.lists(st.text(min_size=1, max_size=9), max_size=5), max_size=4))
def test_any_words_can_be_encoded(sentences: list[list[str]]) -> None:
    words = fitted()
    rows, forms, spellings = words.encode(sentences)
    assert [*map(len, rows)] == [*map(len, forms)] == [*map(len, sentences)]
    assert len(spellings) == len({word for sentence in sentences for word in sentence})
    for sentence, its_rows, its_forms in zip(sentences, rows, forms, strict=True):
        for word, number, form in zip(sentence, its_rows, its_forms, strict=True):
            assert number == words.rows.get(word.lower(), UNKNOWN)
            spelt = [words.characters.get(letter, UNKNOWN) for letter in word]
            assert spellings[form].tolist() == spelt


def test_the_order_of_sentences_changes_nothing() -> None:
    again = WordVocabularyConfig().fit(SENTENCES[::-1])
    assert again.to_json() == fitted().to_json()


@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("lower", [True, False])
def test_a_stored_vocabulary_is_the_same(least: int, lower: bool, tmp_path: Path) -> None:
    odd = Sentence(('"\\\u2028\u00a0\U0001f600',), ("X",))
    config = WordVocabularyConfig(min_count=least, lowercase=lower)
    words, path = config.fit([*SENTENCES, odd]), tmp_path / "tokenizer.json"
    path.write_text(words.to_json(), encoding="utf-8")
    assert WordVocabulary.load(path) == words
    assert words.scheme is None
    entities = config.fit([Sentence(("EU",), ("B-ORG",)), Sentence(("the", "EU"), ("O", "B-ORG"))])
    path.write_text(entities.to_json(), encoding="utf-8")
    assert WordVocabulary.load(path).scheme == entities.scheme == "iob2"


STORED = json.loads(fitted().to_json())
DAMAGED = {
    "nothing": "",
    "cut off": fitted().to_json()[:-20],
    "a list": "[]",
    "null": "null",
    "no keys": "{}",
    "a count that is none": json.dumps({**STORED, "words": [["the", "4", "DET"]]}),
    "a count that is too large": json.dumps({**STORED, "words": [["the", 2**41, "DET"]]}),
    "a count of 0": json.dumps({**STORED, "words": [["the", 0, "DET"]]}),
    "a row too short": json.dumps({**STORED, "words": [["the", 4]]}),
    "a tag that is none": json.dumps({**STORED, "words": [["the", 4, "ADJ"]]}),
    "no words": json.dumps({**STORED, "words": []}),
    "tags in a list": json.dumps({**STORED, "tags": ["DET"]}),
    "case that is a number": json.dumps({**STORED, "lower": 1}),
    "a scheme that does not exist": json.dumps({**STORED, "scheme": "iob3"}),
    "a word that is a number": json.dumps({**STORED, "words": [[4, 4, "DET"]]}),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_a_failure(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(DAMAGED[damage], encoding="utf-8")
    with pytest.raises(Failure, match="the list of words cannot be read") as caught:
        WordVocabulary.load(path)
    assert str(path) in str(caught.value)
