"""Ragged arrays as lists of lists, which a reader can check by eye."""

from itertools import islice

import numpy as np
from hypothesis import strategies as st

from harken.batch.ragged import Ragged, ragged

# Tokens below 90: larger numbers are free for masks, fillers and ends. Empty ones are included.
documents = st.lists(st.lists(st.integers(0, 89), max_size=11), max_size=7)


def numbers(one: list[int]) -> np.ndarray:
    return np.array(one, dtype=np.int64)


def from_lists(sequences: list[list[int]]) -> Ragged:
    return ragged([numbers(one) for one in sequences])


def to_lists(sequences: Ragged) -> list[list[int]]:
    values = iter(sequences.values.tolist())
    found = [list(islice(values, length)) for length in sequences.lengths.tolist()]
    assert list(values) == [], "values that belong to no sequence"
    return found
