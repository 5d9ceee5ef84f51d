"""Words of synthetic sentences: stems, and the stems of their translations.

Target stems, and stems that are not real words, are taken from shuffled lists of all combinations
of groups of letters, so no two stems and no two target stems are equal.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import NamedTuple

from harken.synthetic.draws import HashRNG, shuffled_index

MAX_STEMS = 5000
_HELD_OUT = 5  # one in five inflected forms is not in train

# All combinations of start, vowel, middle and end differ.
_STEM = (
    "b bl br d dr f fl g gr h k l m n pl r s sl st t tr v w",
    "a e i o u",
    "lb lm lv mb mp nd rb rk rm sk st",
    "el en et in ock ow",
)
_TARGET_STEM = ("d k l m n r s t v", "a i o u", "d k l m n r s t v", "a i o u", "d k l m n r s t v")
CLASSES = "aiu"  # the vowel of each noun class

# Real words come first, so they are the most frequent. Generated stems follow; their parts of
# speech repeat `_PARTS_OF_SPEECH`.
_REAL = {
    "both": "duck walk paint cook plant guard cloud hammer mirror shoulder",
    "noun": "river garden teacher boat",
    "verb": "follow visit help remember",
    "adjective": "old slow quiet bright",
}
_PARTS_OF_SPEECH = (
    *("noun", "verb", "adjective", "noun", "both"),
    *("noun", "verb", "noun", "adjective", "noun"),
)


class LexiconEntry(NamedTuple):
    """A stem, the stem of its translation, and, for a noun, the vowel of its noun class."""

    stem: str
    target_stem: str
    vowel: str = ""


class Lexicon(NamedTuple):
    """The open word classes, most frequent words first, and the forms that are not in train."""

    nouns: tuple[LexiconEntry, ...]
    verbs: tuple[LexiconEntry, ...]
    adjectives: tuple[LexiconEntry, ...]
    held_out: frozenset[str]


@lru_cache(maxsize=8)
def lexicon(seed: int, stems: int) -> Lexicon:
    """Return the lexicon of a seed: the real stems and `stems` generated ones."""
    real = [(stem, part) for part, words in _REAL.items() for stem in words.split()]
    generated = [
        (_spelling(_STEM, index, seed, "stems"), _PARTS_OF_SPEECH[index % len(_PARTS_OF_SPEECH)])
        for index in range(stems)
    ]
    nouns, verbs, adjectives = [], [], []
    for index, (stem, part) in enumerate(real + generated):
        # A noun that is also a verb has two translations, which depend on its context.
        first, second = (
            _spelling(_TARGET_STEM, 2 * index + offset, seed, "roots") for offset in (0, 1)
        )
        if part in ("noun", "both"):
            nouns.append(LexiconEntry(stem, first, HashRNG(seed, "class", stem).choice(CLASSES)))
        if part in ("verb", "both"):
            verbs.append(LexiconEntry(stem, second))
        if part == "adjective":
            adjectives.append(LexiconEntry(stem, first))
    inflected = chain(
        (f"{noun.stem}s" for noun in nouns),
        (verb.stem + ending for verb in verbs for ending in ("s", "ed", "ing")),
        (f"{adjective.stem}ly" for adjective in adjectives),
    )
    held_out = (form for form in inflected if HashRNG(seed, "form", form).randrange(_HELD_OUT) == 0)
    return Lexicon(tuple(nouns), tuple(verbs), tuple(adjectives), frozenset(held_out))


def _spelling(groups: Sequence[str], index: int, *key: int | str) -> str:
    """Return word `index` of the shuffled list of all combinations of these groups."""
    choices = [options.split() for options in groups]
    rest, letters = shuffled_index(index, prod(map(len, choices)), *key), ""
    for options in choices:
        rest, digit = divmod(rest, len(options))
        letters += options[digit]
    return letters
