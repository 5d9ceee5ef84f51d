"""Random draws that depend only on a key, and functions that all generators share.

Items can be generated in any order and in constant memory. `Dice` uses hashes, because `random` may
change with Python. NumPy guarantees the bits of a stream, but not normal numbers made from them.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from hashlib import blake2b
from math import inf, isqrt
from pathlib import Path
from typing import TextIO, TypeVar

import numpy as np

from harken.errors import UserError
from harken.files import replacing

T = TypeVar("T")


class Dice:
    """Draws from a key: digits of its 512-bit hash in mixed radix, of which few are needed."""

    __slots__ = ("_digits",)

    def __init__(self, *key: int | str) -> None:
        text = "/".join(map(str, key))
        self._digits = int.from_bytes(blake2b(text.encode()).digest(), "little")

    def below(self, bound: int) -> int:
        self._digits, digit = divmod(self._digits, bound)
        return digit

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]


def keyed_rng(*key: int | str) -> np.random.Generator:
    """Return a random generator that depends only on the key."""
    return np.random.Generator(np.random.Philox(key=Dice(*key).below(1 << 128)))


def shuffled(position: int, size: int, *key: int | str) -> int:
    """Return one element of the shuffled `range(size)` without computing the others.

    A Feistel network permutes the smallest square that contains the range; it is repeated until the
    result is in the range.
    """
    position = int(position)  # numpy integers would overflow
    side = isqrt(size - 1) + 1
    while True:
        high, low = divmod(position, side)
        for round_key in _round_keys(key):
            high, low = low, (high + _scramble(low ^ round_key)) % side
        position = high * side + low
        if position < size:
            return position


@lru_cache
def _round_keys(key: tuple[int | str, ...]) -> tuple[int, ...]:
    dice = Dice("rounds", *key)
    return tuple(dice.below(1 << 64) for _ in range(4))


def _scramble(bits: int) -> int:
    """Spread each of 64 bits over all of them (the finalizer of SplitMix64)."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return bits ^ bits >> 31


def require_ranges(config: object, **ranges: tuple[float, float]) -> None:
    """Raise ValueError unless each named field is within its range, bounds included."""
    for name, (low, high) in ranges.items():
        if not low <= (value := getattr(config, name)) <= high:
            expected = f"at least {low:.15g}" if high == inf else f"from {low:.15g} to {high:.15g}"
            raise ValueError(f"{name} must be {expected}, got {value}")


def require_bounds(minimum: int, maximum: int, limit: int) -> None:
    """Raise ValueError unless 1 <= minimum <= maximum <= limit."""
    if not 1 <= minimum <= maximum <= limit:
        raise ValueError(
            f"expected 1 <= minimum <= maximum <= {limit}, got minimum {minimum}, maximum {maximum}"
        )


def require_generated(folder: Path, names: re.Pattern[str]) -> None:
    """Raise `UserError` if a folder that is to be replaced contains files with other names."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not names.fullmatch(name):
            reason = "expected generated files only, because the folder is replaced"
            fix = "move it away, or choose another folder"
            raise UserError(f"{folder}: contains {name!r} ({reason})", fix=fix)


@contextmanager
def open_all(paths: Sequence[Path]) -> Iterator[list[TextIO]]:
    """Open text files that are renamed to their paths when all of them are complete."""
    with ExitStack() as renames, ExitStack() as files:  # first all are closed, then renamed
        parts = [renames.enter_context(replacing(path)) for path in paths]
        yield [
            files.enter_context(part.open("w", encoding="utf-8", newline="\n")) for part in parts
        ]
