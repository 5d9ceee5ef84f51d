"""JSON as its standard has it, and sentences about what stands in it.

Python's reader lets through what others refuse or read otherwise: NaN, a key that stands in an
object twice. Here both are errors, and so is a nesting that is deeper than the stack.

What is not here: which keys there are; that is known to each form of a file.
"""

import json
import reprlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from harken.errors import UserError

ERRORS = (ValueError, RecursionError)  # what `parsed` raises


def parsed(text: str, *, whole: Callable[[str], int | float] = int) -> Any:
    """The value that a whole text is; `whole` makes a number of digits alone."""
    return json.loads(
        text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_int=whole
    )


def text_of(where: str, key: str, value: object) -> str:
    """The value of a key that must be a text."""
    if isinstance(value, str):
        return value
    raise wrong(where, key, value, "a text in quotes")


def is_whole(value: object) -> bool:
    """A whole number; `true` is none, whatever Python says."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """A number that fits a float; an integer of JSON may be larger than any."""
    number = is_whole(value) or isinstance(value, float)
    return number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def wrong(where: str, key: str, value: object, wanted: str) -> UserError:
    """The sentence for a value that is not what its key stands for."""
    # Not by repr: it goes as deep as the value is nested.
    return UserError(
        f"{where}: found {reprlib.repr(value)[:60]} as {key!r}, wanted {wanted}",
        fix=f"mend {key!r}",
    )


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands in it twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
