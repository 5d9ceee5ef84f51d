"""Split examples into train, dev and test."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from harken.errors import UserError

Example = TypeVar("Example")
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
MAX_RANKED = 2**20  # distinct keys of a stream that are ranked exactly
BLOCK = 2**18  # keys that are ranked at once


class HashSplit(NamedTuple):
    """Holds out the examples whose key has a small hash."""

    seed: int
    max_hash: int  # largest hash that is held out

    def holds_out(self, key: str) -> bool:
        """Return whether examples with this key are held out."""
        return _key_hash(self.seed, key) <= self.max_hash


def hold_out(
    examples: Sequence[Example], share: float, seed: int, key: Callable[[Example], str]
) -> tuple[list[Example], list[Example]]:
    """Return (training, held-out) examples; `share` of the distinct keys is held out.

    Neither list is empty. Keys are ranked by hash: most examples stay in their list if others are
    added.
    """
    keys = list(map(key, examples))
    split = split_by_hash(keys, share, seed)
    parts: tuple[list[Example], list[Example]] = [], []
    for example, text in zip(examples, keys, strict=True):
        parts[split.holds_out(text)].append(example)
    return parts


def split_by_hash(
    keys: Iterable[str], share: float, seed: int, max_count: int | None = None
) -> HashSplit:
    """Return the split that holds out a share of the distinct keys.

    With `max_count`, at most `max_count` keys are held out, and memory is constant: of `MAX_RANKED`
    or more keys, those are held out whose hash is in the lowest `share` of all possible hashes.
    """
    max_ranked, block_size = (None, None) if max_count is None else (MAX_RANKED, BLOCK)
    hashes, ranked = (_key_hash(seed, key) for key in keys), np.zeros(0, dtype=np.uint64)
    while block := list(islice(hashes, block_size)):
        ranked = np.unique(np.append(ranked, np.array(block, dtype=np.uint64)))[:max_ranked]
    distinct = len(ranked)
    if distinct < 2:
        message = f"data.dev: expected at least 2 distinct examples to split, got {distinct}"
        raise UserError(message, fix="add examples, or set data.dev to a file")
    count = math.floor(share * distinct + 0.5)
    if distinct == max_ranked:
        count = int(np.searchsorted(ranked, np.uint64(share * 2**64)))
    count = min(max(count, 1), distinct - 1, max_count or distinct)
    return HashSplit(seed, int(ranked[count - 1]))


def _key_hash(seed: int, key: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{key}".encode()).digest()[:8], "big")


def split_sizes(count: int) -> dict[Split, int]:
    """Return the size of each split: a tenth for dev and for test, at least one."""
    tenth = max(count // 10, 1)
    return {"train": count - 2 * tenth, "dev": tenth, "test": tenth}
