"""Random orders of any number of items; large ones are computed instead of stored.

A computed order is a Feistel network: a bijection of the numbers below a power of 4, whose round
keys are random. A result outside of the range enters the network again until it is inside (cycle
walking), so the network permutes the range itself.
"""

import numpy as np

from harken.batch.ragged import IntArray

MAX_STORED = 1 << 20  # items; 8 MiB
ROUNDS = 8
MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)  # of SplitMix64


class Permutation:
    """A random order of range(count), which the generator determines."""

    def __init__(self, count: int, generator: np.random.Generator) -> None:
        self._count = count
        self._stored = generator.permutation(count) if count <= MAX_STORED else None
        if self._stored is None:
            self._keys = generator.integers(0, 1 << 64, ROUNDS, dtype=np.uint64)

    def __len__(self) -> int:
        return self._count

    def take(self, indices: IntArray) -> IntArray:
        """Return the items at these indices of the order."""
        if self._stored is not None:
            return np.asarray(self._stored[indices])
        return feistel(indices, self._count, self._keys)


def feistel(indices: IntArray, count: int, keys: IntArray) -> IntArray:
    """Map each index by a permutation of range(count), which the round keys determine."""
    bits = (count - 1).bit_length()
    half_bits = np.uint64(max(1, (bits + 1) // 2))
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    results = np.asarray(indices, dtype=np.uint64)
    outside = np.arange(len(results))
    while len(outside):
        left, right = results[outside] >> half_bits, results[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mix(right, key) & mask)
        results[outside] = (left << half_bits) | right
        outside = outside[results[outside] >= count]
    return results.astype(np.int64)


def _mix(values: IntArray, key: np.uint64) -> IntArray:
    """Return 64 pseudo-random bits for each value: the output function of SplitMix64."""
    mixed = values + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * MULTIPLIERS[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MULTIPLIERS[1]
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
