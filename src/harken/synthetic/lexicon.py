"""Words of synthetic sentences: stems built from syllables, and their roots in the target language.

Roots, and stems that are not real words, are taken from shuffled lists of all combinations of
syllables, so no two stems and no two roots are equal.
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
_ROOT = ("d k l m n r s t v", "a i o u", "d k l m n r s t v", "a i o u", "d k l m n r s t v")
CLASSES = "aiu"  # the vowel of each noun class

# Real words come first, so they are the most frequent. Generated stems follow with these roles.
_REAL = {
    "both": "duck walk paint cook plant guard cloud hammer mirror shoulder",
    "noun": "river garden teacher boat",
    "verb": "follow visit help remember",
    "adjective": "old slow quiet bright",
}
_ROLES = ("noun", "verb", "adjective", "noun", "both", "noun", "verb", "noun", "adjective", "noun")


class LexiconEntry(NamedTuple):
    """A stem, its root in the target language, and, for a noun, the vowel of its noun class."""

    stem: str
    root: str
    vowel: str = ""


class Lexicon(NamedTuple):
    """The open word classes, most frequent words first, and the forms that are not in train."""

    nouns: tuple[LexiconEntry, ...]
    verbs: tuple[LexiconEntry, ...]
    adjectives: tuple[LexiconEntry, ...]
    held_out: frozenset[str]


@lru_cache(maxsize=8)
def lexicon(seed: int, stems: int) -> Lexicon:
    """Return all words of a seed, with `stems` generated stems."""
    real = [(stem, role) for role, words in _REAL.items() for stem in words.split()]
    generated = [
        (_spelling(_STEM, index, seed, "stems"), _ROLES[index % len(_ROLES)])
        for index in range(stems)
    ]
    nouns, verbs, adjectives = [], [], []
    for index, (stem, role) in enumerate(real + generated):
        # A noun that is also a verb has two translations, which depend on its context.
        first, second = (_spelling(_ROOT, 2 * index + offset, seed, "roots") for offset in (0, 1))
        if role in ("noun", "both"):
            nouns.append(LexiconEntry(stem, first, HashRNG(seed, "class", stem).choice(CLASSES)))
        if role in ("verb", "both"):
            verbs.append(LexiconEntry(stem, second))
        if role == "adjective":
            adjectives.append(LexiconEntry(stem, first))
    inflected = chain(
        (f"{noun.stem}s" for noun in nouns),
        (verb.stem + ending for verb in verbs for ending in ("s", "ed", "ing")),
        (f"{adjective.stem}ly" for adjective in adjectives),
    )
    held_out = (form for form in inflected if HashRNG(seed, "form", form).randrange(_HELD_OUT) == 0)
    return Lexicon(tuple(nouns), tuple(verbs), tuple(adjectives), frozenset(held_out))


def _spelling(syllables: Sequence[str], index: int, *key: int | str) -> str:
    """Return word `index` of the shuffled list of all combinations of syllables."""
    choices = [options.split() for options in syllables]
    rest, letters = shuffled_index(index, prod(map(len, choices)), *key), ""
    for options in choices:
        rest, digit = divmod(rest, len(options))
        letters += options[digit]
    return letters
