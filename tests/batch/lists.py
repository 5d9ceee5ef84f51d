"""Ragged arrays as lists of lists."""

from itertools import islice

import numpy as np
from hypothesis import strategies as st

from harken.batch.ragged import Ragged, ragged

# Tokens below 90, so that larger numbers can be masks, fillers and ends. Empty ones are included.
documents = st.lists(st.lists(st.integers(0, 89), max_size=11), max_size=7)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def from_lists(sequences: list[list[int]]) -> Ragged:
    return ragged(list(map(numbers, sequences)))


def to_lists(sequences: Ragged) -> list[list[int]]:
    values = iter(sequences.values.tolist())
    lists = [list(islice(values, length)) for length in sequences.lengths.tolist()]
    assert list(values) == [], "values after the last sequence"
    return lists
