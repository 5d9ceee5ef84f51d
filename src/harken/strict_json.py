"""Parse strict JSON, and report wrong values in it.

NaN, duplicate keys, integers of more than 19 digits and texts of more than `MAX_VALUES` values are
errors; many values would fill the memory (an empty list takes 3 bytes as text and 64 in memory).
"""

import json
import reprlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from harken.errors import UserError

JSON_ERRORS = (ValueError, RecursionError)  # raised by `parse_json`
MAX_VALUES = 2**23  # a tokenizer of a million tokens has half as many
MAX_DIGITS = 19  # of an integer; every signed 64-bit integer fits


def integer(digits: str) -> int:
    """Convert digits to an integer; raise ValueError if it has more than 19 digits."""
    if len(digits.lstrip("+-0")) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS} digits")
    return int(digits)


def parse_json(text: str, *, parse_int: Callable[[str], int | float] = integer) -> Any:
    """Parse one JSON value; `parse_int` converts numbers without decimal point or exponent."""
    if sum(map(text.count, "[{,")) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    return json.loads(
        text, object_pairs_hook=_unique_keys, parse_constant=_reject_constant, parse_int=parse_int
    )


def text_of(where: str, key: str, value: object) -> str:
    """Return the value of a key that must be a string."""
    if isinstance(value, str):
        return value
    raise wrong_value(where, key, value, "a text in quotes")


def is_whole(value: object) -> bool:
    """Whether the value is an integer, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """Whether the value is a finite number; integers must fit a float."""
    number = is_whole(value) or isinstance(value, float)
    return number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def wrong_value(where: str, key: str, value: object, expected: str) -> UserError:
    """Return the error for a key whose value is not as `expected`; `where` names file or line."""
    short = reprlib.repr(value)[:60]  # `repr` recurses as deep as the value is nested
    message = f"{where}: wrong value of {key!r} (expected {expected}, got {short})"
    return UserError(message, fix=f"correct {key!r}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
