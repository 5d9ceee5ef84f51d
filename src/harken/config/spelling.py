"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from harken.errors import UserError


def nearest_first(word: object, options: Iterable[Any]) -> list[Any]:
    """Sort the options by similarity to a word, the most similar first."""
    return sorted(options, key=lambda option: _similarity(word, option), reverse=True)


def nearest(word: object, options: Iterable[Any]) -> Any | None:
    """Return the option that the word is probably a misspelling of, or None."""
    best = next(iter(nearest_first(word, options)), None)
    return best if best is not None and _similarity(word, best) >= 0.6 else None


def require_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise a UserError unless the value of an argument is one of the choices."""
    if value in choices:
        return
    *others, last = map(repr, choices)
    near = nearest(value, choices)
    raise UserError(
        f"{name}: unknown value {value!r} (expected {', '.join(others)} or {last})",
        fix=f"did you mean {near!r}?" if near else "choose one of these",
    )


def _similarity(word: object, option: object) -> float:
    return difflib.SequenceMatcher(None, str(word).lower(), str(option).lower()).ratio()
