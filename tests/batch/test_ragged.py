import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.ragged import append, concat_ragged, ragged, ragged_indices, ragged_slices

from .lists import documents, from_lists, numbers, to_lists


@given(documents)
def test_round_trip(sequences: list[list[int]]) -> None:
    made = from_lists(sequences)
    assert to_lists(made) == sequences
    assert made.starts.tolist() == [sum(map(len, sequences[:n])) for n in range(len(sequences))]


def test_values_are_int64() -> None:
    # Arithmetic on uint16 would wrap at 65536.
    made = ragged([np.array([65535], dtype=np.uint16), np.array([7], dtype=np.uint16)])
    assert (made.values + 1).tolist() == [65536, 8]
    taken = ragged_slices(np.array([65535], dtype=np.uint16), numbers([0]), numbers([1]))
    assert (taken.values + 1).tolist() == [65536]


@given(documents)
def test_indices_equal_a_double_loop(sequences: list[list[int]]) -> None:
    owner, index = ragged_indices(from_lists(sequences).lengths)
    slow = [(n, p) for n, sequence in enumerate(sequences) for p in range(len(sequence))]
    assert list(zip(owner.tolist(), index.tolist(), strict=True)) == slow


@given(st.lists(st.integers(0, 89), max_size=23), st.data())
def test_slices_equal_list_slices(source: list[int], data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, len(source)), st.integers(0, len(source))).map(sorted)
    chosen = data.draw(st.lists(bounds, max_size=5))
    taken = ragged_slices(
        numbers(source),
        numbers([start for start, _ in chosen]),
        numbers([stop - start for start, stop in chosen]),
    )
    assert to_lists(taken) == [source[start:stop] for start, stop in chosen]


@given(st.lists(documents, min_size=1, max_size=3))
def test_join_keeps_the_order(parts: list[list[list[int]]]) -> None:
    joined = concat_ragged([from_lists(part) for part in parts])
    assert to_lists(joined) == [sequence for part in parts for sequence in part]


@given(documents)
def test_append_reaches_every_sequence(sequences: list[list[int]]) -> None:
    assert to_lists(append(from_lists(sequences), 97)) == [
        [*sequence, 97] for sequence in sequences
    ]
