"""Strict JSON, and errors about the values in it.

Python's parser accepts what other parsers refuse: NaN, and an object with the same key twice. Here
both are errors, and so are nesting deeper than the stack, numbers of more than 64 bits, and a text
of so many values that it would fill the memory (an empty list takes 3 bytes as text and 64 in
memory).

Which keys a file has is checked by its own reader.
"""

import json
import reprlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from harken.errors import UserError

ERRORS = (ValueError, RecursionError)  # what `parsed` raises
MAX_VALUES = 2**23  # a tokenizer of a million tokens has half as many
MAX_DIGITS = 19  # of a whole number: 64 bits


def integer(digits: str) -> int:
    """Convert the digits of a whole number; ValueError where it has more than 64 bits."""
    if len(digits.lstrip("+-0")) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def parsed(text: str, *, whole: Callable[[str], int | float] = integer) -> Any:
    """Parse a text that is one JSON value; `whole` converts numbers without point or exponent."""
    if sum(map(text.count, "[{,")) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    return json.loads(
        text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_int=whole
    )


def text_of(where: str, key: str, value: object) -> str:
    """Return the value of a key that must be a string."""
    if isinstance(value, str):
        return value
    raise wrong(where, key, value, "a text in quotes")


def is_whole(value: object) -> bool:
    """Whether this is an integer; `True` is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """Whether this is a number that fits a float; integers in JSON may be larger."""
    number = is_whole(value) or isinstance(value, float)
    return number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def wrong(where: str, key: str, value: object, expected: str) -> UserError:
    """Return the error for a wrong value."""
    # Not `repr`, which recurses as deep as the value is nested.
    shown = reprlib.repr(value)[:60]
    return UserError(
        f"{where}: wrong value of {key!r} (expected {expected}, got {shown})",
        fix=f"correct {key!r}",
    )


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
