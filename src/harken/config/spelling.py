"""The word that was probably meant."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from harken.errors import UserError


def nearest_first(word: object, options: Iterable[Any]) -> list[Any]:
    """The options, those most like the word first."""
    return sorted(options, key=lambda option: _likeness(word, option), reverse=True)


def nearest(word: object, options: Iterable[Any]) -> Any | None:
    """The option that the word is likely a misspelling of."""
    best = next(iter(nearest_first(word, options)), None)
    return best if best is not None and _likeness(word, best) >= 0.6 else None


def require_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless the value of an argument is one of a few names."""
    if value in choices:
        return
    *others, last = map(repr, choices)
    near = nearest(value, choices)
    raise UserError(
        f"{name}: unknown value {value!r} (expected {', '.join(others)} or {last})",
        fix=f"did you mean {near!r}?" if near else "choose one of these",
    )


def _likeness(word: object, option: object) -> float:
    return difflib.SequenceMatcher(None, str(word).lower(), str(option).lower()).ratio()
