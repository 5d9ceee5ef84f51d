"""Words -> numbers: the row of each word and, beside it, how the word is spelt.

    word         "London"  ->  the row of "london", or UNKNOWN        (case left out, if so chosen)
    characters   "London"  ->  L o n d o n, each its number or UNKNOWN

A word that training never met still has a spelling, and an exact form is spelt once however often
it stands in a text. What training knew of each word (how often, with which tag) is kept too: the
figures of known and unknown words need it, and so does the simplest guess.

Subwords, for models that write text, are in `subwords.py`.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harken.config import bounded
from harken.encode.vocabulary import UNKNOWN, VocabularySizes
from harken.errors import Failure, UserError
from harken.formats.examples import Sentence
from harken.inputs import read_json, shown

FIRST = UNKNOWN + 1  # rows and characters begin behind PAD and UNKNOWN
MAX_BYTES = 2**26
MAX_COUNT = 2**40  # that a word was met
ENDS = 20  # characters kept at each end of a word that is longer than two ends


class Known(NamedTuple):
    """What training knew of an exact form."""

    times: int
    tag: str  # the commonest one


class EncodedWords(NamedTuple):
    """Sentences as numbers; `spellings` are of the distinct forms that `forms` points to."""

    rows: list[np.ndarray]
    forms: list[np.ndarray]
    spellings: list[np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True)
class WordVocabularyConfig:
    """Which words have a row of their own."""

    min_count: int = bounded(1, at_least=1)  # times that a word must have been met
    lowercase: bool = True  # rows leave case out; spellings never do

    def fit(self, sentences: Iterable[Sentence]) -> "WordVocabulary":
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for sentence in sentences:
            for word, tag in zip(sentence.words, sentence.tags, strict=True):
                by_word[word][tag] += 1
        tags: Counter[str] = Counter()
        for counts in by_word.values():
            tags.update(counts)
        return WordVocabulary(
            least=self.min_count,
            lower=self.lowercase,
            known={
                word: Known(by_word[word].total(), commonest_of(by_word[word]))
                for word in sorted(by_word)
            },
            tag_counts={tag: tags[tag] for tag in sorted(tags)},
        )


def commonest_of(counts: Mapping[str, int]) -> str:
    """Of equally common ones the first in the alphabet, so that a fit is the same every time."""
    return min(counts, key=lambda tag: (-counts[tag], tag))


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class WordVocabulary:
    """What was fitted to the training words; immutable in use."""

    least: int
    lower: bool
    known: Mapping[str, Known]  # by exact form
    tag_counts: Mapping[str, int]  # in sorted order: a tag's place is its number
    rows: Mapping[str, int] = field(init=False)
    characters: Mapping[str, int] = field(init=False)
    tags: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        counts = self._counts()
        listed = sorted(word for word in counts if counts[word] >= self.least)
        letters = sorted({letter for form in self.known for letter in form})
        put = object.__setattr__
        put(self, "rows", {word: number for number, word in enumerate(listed, start=FIRST)})
        put(self, "characters", {one: number for number, one in enumerate(letters, start=FIRST)})
        put(self, "tags", tuple(self.tag_counts))

    def __repr__(self) -> str:
        sizes = f"words={len(self)}, characters={self.character_count}, tags={len(self.tags)}"
        return f"WordVocabulary({sizes})"

    def __len__(self) -> int:
        """How many rows there are, PAD and UNKNOWN among them."""
        return FIRST + len(self.rows)

    @property
    def character_count(self) -> int:
        """How many characters there are, PAD and UNKNOWN among them."""
        return FIRST + len(self.characters)

    @property
    def sizes(self) -> VocabularySizes:
        return VocabularySizes(len(self), self.character_count, len(self.tags))

    @property
    def row_counts(self) -> np.ndarray:
        """How often training met the word of each row."""
        counts = self._counts()
        found = np.zeros(len(self), dtype=np.int64)
        for word, row in self.rows.items():
            found[row] = counts[word]
        return found

    @property
    def majority_tag(self) -> str:
        return commonest_of(self.tag_counts)

    def likely_tag(self, form: str) -> str:
        """What to say of a word when nothing is known but how training tagged it."""
        return self.known[form].tag if form in self.known else self.majority_tag

    def encode(self, sentences: Sequence[Sequence[str]]) -> EncodedWords:
        """Any words whatever; those never met are UNKNOWN and still spelt."""
        forms: dict[str, int] = {}
        places = [
            np.array([forms.setdefault(word, len(forms)) for word in words], dtype=np.int64)
            for words in sentences
        ]
        row_of = np.array([self._row(form) for form in forms], dtype=np.int64)
        return EncodedWords([row_of[one] for one in places], places, [*map(self._spell, forms)])

    def to_json(self) -> str:
        words = [[word, *known] for word, known in self.known.items()]
        stored = {"least": self.least, "lower": self.lower, "tags": dict(self.tag_counts)}
        return json.dumps({**stored, "words": words}, ensure_ascii=False, indent=0)

    @classmethod
    def load(cls, path: Path) -> "WordVocabulary":
        try:
            return cls(**_parsed(read_json(path, "a list of words", max_bytes=MAX_BYTES)))
        except (UserError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"{shown(path)}: found a list of words that cannot be read ({error}), "
                "wanted the file that the run wrote",
                fix="restore it from a copy, or train again",
            ) from None

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for form, known in self.known.items():
            counts[self._without_case(form)] += known.times
        return counts

    def _without_case(self, form: str) -> str:
        return form.lower() if self.lower else form

    def _row(self, form: str) -> int:
        return self.rows.get(self._without_case(form), UNKNOWN)

    def _spell(self, form: str) -> np.ndarray:
        shown = form if len(form) <= 2 * ENDS else form[:ENDS] + form[-ENDS:]
        return np.array([self.characters.get(one, UNKNOWN) for one in shown], dtype=np.int64)


def _parsed(stored: dict[str, Any]) -> dict[str, Any]:
    """The fields again; whatever is not of its type is a ValueError."""
    least, lower, tags = stored["least"], stored["lower"], stored["tags"]
    known = {word: Known(count, tag) for word, count, tag in stored["words"]}
    counts = [least, *tags.values(), *(one.times for one in known.values())]
    if type(lower) is not bool or any(type(n) is not int or not 0 < n <= MAX_COUNT for n in counts):
        raise ValueError("a count is no number above 0")
    if not known or any(one.tag not in tags for one in known.values()):
        raise ValueError("words without tags")
    return {"least": least, "lower": lower, "known": known, "tag_counts": tags}
