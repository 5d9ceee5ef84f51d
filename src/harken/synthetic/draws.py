"""Random numbers from a key, checks of settings, and output files of all generators.

An item depends only on its key, so items can be generated in any order and in constant memory.
`HashRNG` uses hashes, because `random` may change with Python. `keyed_rng` has the same random bits
in every version of NumPy, but numbers that NumPy computes from them, such as normal ones, may
change.
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


class HashRNG:
    """Random numbers from a key: digits of its 512-bit hash in mixed radix.

    The product of the bounds of all draws must be far below 2^512: once the hash is used up, every
    draw is 0.
    """

    __slots__ = ("_digits",)

    def __init__(self, *key: int | str) -> None:
        text = "/".join(map(str, key))
        self._digits = int.from_bytes(blake2b(text.encode()).digest(), "little")

    def randrange(self, bound: int) -> int:
        self._digits, digit = divmod(self._digits, bound)
        return digit

    def choice(self, items: Sequence[T]) -> T:
        return items[self.randrange(len(items))]


def keyed_rng(*key: int | str) -> np.random.Generator:
    """Return a random generator that depends only on the key."""
    return np.random.Generator(np.random.Philox(key=HashRNG(*key).randrange(1 << 128)))


def shuffled_index(position: int, size: int, *key: int | str) -> int:
    """Return one element of the shuffled `range(size)` without computing the others.

    A Feistel network permutes the smallest square that contains the range. The network is applied
    until the result is in the range (cycle walking).
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
    rng = HashRNG("rounds", *key)
    return tuple(rng.randrange(1 << 64) for _ in range(4))


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


def require_bounds(config: object, items: str, limit: int) -> None:
    """Raise ValueError unless the fields of the config satisfy 1 <= min_… <= max_… <= limit.

    items: the rest of the two field names, such as "words" for min_words and max_words
    """
    low, high = f"min_{items}", f"max_{items}"
    minimum, maximum = getattr(config, low), getattr(config, high)
    if not 1 <= minimum <= maximum <= limit:
        raise ValueError(f"expected 1 <= {low} <= {high} <= {limit}, got {minimum} and {maximum}")


def require_only_generated(folder: Path, names: re.Pattern[str]) -> None:
    """Raise `UserError` if a folder that is to be replaced contains files with other names."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not names.fullmatch(name):
            reason = "expected generated files only, because the folder is replaced"
            fix = "move it away, or choose another folder"
            raise UserError(f"{folder}: contains {name!r} ({reason})", fix=fix)


@contextmanager
def open_outputs(paths: Sequence[Path]) -> Iterator[list[TextIO]]:
    """Open text files that are renamed to their paths when all of them are complete."""
    with ExitStack() as renames, ExitStack() as files:  # all are closed before any is renamed
        drafts = [renames.enter_context(replacing(path)) for path in paths]
        yield [
            files.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in drafts
        ]
