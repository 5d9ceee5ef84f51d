"""Words -> the index of each word in an embedding table, and the indices of its characters.

    word         "London"  ->  the row of "london" in the table, or UNKNOWN
    characters   "London"  ->  L o n d o n, each an index or UNKNOWN

A form is a word as it is written, with its case. Each distinct form is encoded once. The vocabulary
also stores the count and the most frequent tag of each form, for the majority baseline and for
metrics of known and unknown words, and the scheme of tags that mark entities.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from harken.config import bounded
from harken.encode.pretrained import WordPieces
from harken.encode.vocabulary import UNKNOWN, VocabularySizes
from harken.errors import Failure, UserError
from harken.formats.entity_tags import TagScheme, tag_scheme
from harken.formats.examples import Sentence
from harken.inputs import read_json, short_path

FIRST_INDEX = UNKNOWN + 1  # of words and characters; PAD and UNKNOWN come before
MAX_BYTES = 2**26
MAX_COUNT = 2**40  # a larger count means that the file is damaged
END_CHARACTERS = 20  # at both ends of the word; characters between them are ignored


class WordStatistics(NamedTuple):
    """The count and the most frequent tag of a form in the training data."""

    occurrences: int
    tag: str


class EncodedWords(NamedTuple):
    """Sentences as rows of the embedding table, and as distinct forms with their characters."""

    rows: list[np.ndarray]  # of each sentence, a row per word
    forms: list[np.ndarray]  # of each sentence, an index into `spellings` per word
    # of each distinct form, the indices of its characters, or of its word pieces
    spellings: list[np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True)
class WordVocabularyConfig:
    """Which words have an embedding."""

    kind: Literal["words"] = "words"
    # minimum count; rarer words have the embedding of the unknown word
    min_count: int = bounded(1, at_least=1)
    # words that differ only in case share an embedding; their characters keep the case
    lowercase: bool = True

    def fit(
        self, sentences: Sequence[Sentence], pieces: WordPieces | None = None
    ) -> "WordVocabulary":
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        tags: Counter[str] = Counter()
        for sentence in sentences:
            tags.update(sentence.tags)
            for word, tag in zip(sentence.words, sentence.tags, strict=True):
                by_word[word][tag] += 1
        return WordVocabulary(
            min_count=self.min_count,
            lowercase=self.lowercase,
            statistics={
                word: WordStatistics(by_word[word].total(), _most_frequent(by_word[word]))
                for word in sorted(by_word)
            },
            tag_counts={tag: tags[tag] for tag in sorted(tags)},
            pieces=pieces,
            scheme=tag_scheme([sentence.tags for sentence in sentences]),
        )


def _most_frequent(counts: Mapping[str, int]) -> str:
    """Return the key with the highest count; ties go to the first in alphabetical order."""
    return min(counts, key=lambda tag: (-counts[tag], tag))


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class WordVocabulary:
    """The words, characters and tags of the training data.

    With `pieces`, words are spelled in the pieces of a pretrained tokenizer, and the row of a word
    is its case pattern, which tokenizers such as that of uncased BERT drop.
    """

    min_count: int
    lowercase: bool
    statistics: Mapping[str, WordStatistics]  # by form
    tag_counts: Mapping[str, int]  # in sorted order, which defines the index of a tag
    scheme: TagScheme | None  # None if the tags do not mark entities
    pieces: WordPieces | None = None
    rows: Mapping[str, int] = field(init=False)  # word to row of the embedding table
    characters: Mapping[str, int] = field(init=False)
    tags: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        counts = self._counts()
        frequent = sorted(word for word in counts if counts[word] >= self.min_count)
        chars = sorted({char for form in self.statistics for char in form})
        assign = object.__setattr__  # the dataclass is frozen
        assign(self, "rows", {word: row for row, word in enumerate(frequent, start=FIRST_INDEX)})
        assign(self, "characters", {char: n for n, char in enumerate(chars, start=FIRST_INDEX)})
        assign(self, "tags", tuple(self.tag_counts))

    def __repr__(self) -> str:
        words, characters, tags, *_ = self.sizes
        return f"WordVocabulary(words={words}, characters={characters}, tags={tags})"

    def __len__(self) -> int:
        """Return the number of rows, including PAD and UNKNOWN."""
        return FIRST_INDEX + len(self.rows)

    @property
    def sizes(self) -> VocabularySizes:
        words, tags, pieces = len(self), len(self.tags), self.pieces
        if pieces is not None:
            return VocabularySizes(words, pieces.rows, tags, pieces.cls, pieces.sep)
        return VocabularySizes(words, FIRST_INDEX + len(self.characters), tags)

    @property
    def row_counts(self) -> np.ndarray:
        """The count of the word of each row in the training data."""
        counts = self._counts()
        return np.array([0] * FIRST_INDEX + [counts[word] for word in self.rows], dtype=np.int64)

    @property
    def majority_tag(self) -> str:
        return _most_frequent(self.tag_counts)

    def likely_tag(self, form: str) -> str:
        """Return the most frequent tag of a word, or of all words if it is unknown."""
        return self.statistics[form].tag if form in self.statistics else self.majority_tag

    def encode(self, sentences: Sequence[Sequence[str]]) -> EncodedWords:
        forms: dict[str, int] = {}
        indices = [
            np.array([forms.setdefault(word, len(forms)) for word in words], dtype=np.int64)
            for words in sentences
        ]
        rows = np.array([self._row(form) for form in forms], dtype=np.int64)
        spellings = list(map(self._spell, forms))
        if self.pieces is not None:
            spellings = self.pieces.encode(list(forms))
        return EncodedWords([rows[index] for index in indices], indices, spellings)

    def to_json(self) -> str:
        words = [[form, *entry] for form, entry in self.statistics.items()]
        stored: dict[str, Any] = {
            "least": self.min_count,
            "lower": self.lowercase,
            "scheme": self.scheme,
            "tags": dict(self.tag_counts),
            "words": words,
        }
        if self.pieces is not None:
            stored["pieces"] = self.pieces.to_plain()
        return json.dumps(stored, ensure_ascii=False, indent=0)

    @classmethod
    def load(cls, path: Path) -> "WordVocabulary":
        try:
            stored = read_json(path, "a list of words", max_bytes=MAX_BYTES)
            has_pieces = isinstance(stored, dict) and "pieces" in stored
            pieces = WordPieces.from_plain(stored["pieces"], path) if has_pieces else None
            return cls(**_parsed(stored), pieces=pieces)
        except (UserError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"{short_path(path)}: the list of words cannot be read ({error}; expected the file "
                "that the run wrote)",
                fix="restore it from a copy, or train again",
            ) from None

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for form, entry in self.statistics.items():
            counts[self._embedded(form)] += entry.occurrences
        return counts

    def _row(self, form: str) -> int:
        return self.rows.get(self._embedded(form), UNKNOWN)

    def _embedded(self, form: str) -> str:
        """Return the key of this word's row: the word, its lower case, or its case pattern."""
        if self.pieces is not None:
            return case_pattern(form)
        return form.lower() if self.lowercase else form

    def _spell(self, form: str) -> np.ndarray:
        is_long = len(form) > 2 * END_CHARACTERS
        kept = form[:END_CHARACTERS] + form[-END_CHARACTERS:] if is_long else form
        return np.array([self.characters.get(char, UNKNOWN) for char in kept], dtype=np.int64)


def case_pattern(form: str) -> str:
    """Return the case of the letters of a word: "Ada" -> "title", "NATO" -> "upper"."""
    patterns = {"lower": form.islower(), "title": form.istitle(), "upper": form.isupper()}
    mixed = "mixed" if form.lower() != form else "none"
    # "I" is both upper and title.
    return next((name for name, matches in patterns.items() if matches), mixed)


def _parsed(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a vocabulary; raise ValueError for wrong values."""
    min_count, lowercase, tags = stored["least"], stored["lower"], stored["tags"]
    entries = {form: WordStatistics(count, tag) for form, count, tag in stored["words"]}
    counts = [min_count, *tags.values(), *(entry.occurrences for entry in entries.values())]
    if type(lowercase) is not bool:
        raise ValueError("'lower' is not true or false")
    if any(type(count) is not int or not 0 < count <= MAX_COUNT for count in counts):
        raise ValueError(f"a count is not an integer from 1 to {MAX_COUNT:,}")
    if not entries or any(entry.tag not in tags for entry in entries.values()):
        raise ValueError("no words, or a word whose tag is not in 'tags'")
    if (scheme := stored["scheme"]) not in (None, *get_args(TagScheme)):
        raise ValueError(f"'scheme' is {scheme!r}")
    settings = {"min_count": min_count, "lowercase": lowercase, "scheme": scheme}
    return {**settings, "statistics": entries, "tag_counts": tags}
