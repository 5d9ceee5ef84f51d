"""The word that was probably meant."""

import difflib
from collections.abc import Iterable
from typing import Any


def nearest_first(word: object, options: Iterable[Any]) -> list[Any]:
    """The options, those most like the word first."""
    return sorted(options, key=lambda option: _likeness(word, option), reverse=True)


def nearest(word: object, options: Iterable[Any]) -> Any | None:
    """The option that the word is likely a misspelling of."""
    best = next(iter(nearest_first(word, options)), None)
    return best if best is not None and _likeness(word, best) >= 0.6 else None


def _likeness(word: object, option: object) -> float:
    return difflib.SequenceMatcher(None, str(word).lower(), str(option).lower()).ratio()
