"""Blanks against loops over lists."""

import math
from itertools import compress, islice

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.bucketing import rng
from harken.batch.cloze import (
    ClozeQueries,
    choose_blanks,
    cut_evenly,
    length_batches,
    mask_one_by_one,
    mask_together,
)
from harken.batch.ragged import Ragged

from .lists import from_lists, to_lists

PAD = 0
ROWS = st.lists(st.lists(st.integers(4, 99), min_size=1, max_size=13), min_size=1, max_size=7)


def flags_of(queries: ClozeQueries) -> list[list[bool]]:
    return to_lists(Ragged(queries.blanked, queries.rows.lengths))


@given(ROWS, st.randoms(use_true_random=False))
def test_a_batch_has_the_blanked_words_as_targets(lists: list[list[int]], random) -> None:
    flags = [[random.random() < 0.4 for _ in row] for row in lists]
    blanked = np.array([flag for row in flags for flag in row])
    batch = ClozeQueries(from_lists(lists), blanked).batch(PAD)
    longest = max(map(len, lists))
    targets: list[int] = []
    for number, (row, marks) in enumerate(zip(lists, flags, strict=True)):
        padding = longest - len(row)
        assert batch.tokens[number].tolist() == row + [PAD] * padding
        assert batch.present[number].tolist() == [True] * len(row) + [False] * padding
        assert batch.blanks[number].tolist() == marks + [False] * padding
        targets += compress(row, marks)
    assert batch.targets.tolist() == targets
    assert batch.num_targets == len(targets)
    assert {part.device.type for part in batch.to(torch.device("meta"))} == {"meta"}


@given(ROWS, st.sets(st.integers(0, 90), min_size=1))
def test_masking_together_and_one_by_one(lists: list[list[int]], indices: set[int]) -> None:
    rows = from_lists(lists)
    chosen = np.array(sorted({index % len(rows.values) for index in indices}))
    words = [(row, column) for row, words in enumerate(lists) for column in range(len(words))]
    blanks = [words[index] for index in chosen]

    one_by_one = mask_one_by_one(rows, chosen)
    assert to_lists(one_by_one.rows) == [lists[row] for row, _ in blanks]
    assert flags_of(one_by_one) == [
        [column == other for other in range(len(lists[row]))] for row, column in blanks
    ]
    together = mask_together(rows, chosen)
    blanked_rows = sorted({row for row, _ in blanks})
    assert to_lists(together.rows) == [lists[row] for row in blanked_rows]
    assert flags_of(together) == [
        [(row, column) in blanks for column in range(len(lists[row]))] for row in blanked_rows
    ]
    for queries in (one_by_one, together):  # both in the order of `chosen`
        assert queries.rows.values[queries.blanked].tolist() == rows.values[chosen].tolist()


@given(ROWS, st.randoms(use_true_random=False))
def test_rows_are_taken_in_any_order(lists: list[list[int]], random) -> None:
    rows = from_lists(lists)
    queries = ClozeQueries(rows, np.arange(len(rows.values)) % 3 == 0)
    chosen = [random.randrange(len(lists)) for _ in range(5)]
    taken = queries.take(np.array(chosen))
    assert to_lists(taken.rows) == [lists[row] for row in chosen]
    assert flags_of(taken) == [flags_of(queries)[row] for row in chosen]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 13))
def test_chunks_are_few_and_even(lengths: list[int], max_length: int) -> None:
    values = np.arange(sum(lengths))
    chunks = cut_evenly(Ragged(values, np.array(lengths)), max_length)
    assert chunks.values.tolist() == values.tolist()
    rest = iter(chunks.lengths.tolist())
    for length in lengths:
        parts = list(islice(rest, math.ceil(length / max_length)))
        assert sum(parts) == length
        assert max(parts, default=0) <= min(max_length, min(parts, default=0) + 1)
    assert list(rest) == []


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=9), st.floats(0.01, 1.0), st.integers(0, 999)
)
def test_the_share_of_blanks(lengths: list[int], share: float, seed: int) -> None:
    blanked = choose_blanks(np.array(lengths), share, rng(seed))
    counts = [int(row.sum()) for row in np.split(blanked, np.cumsum(lengths)[:-1])]
    assert counts == [max(1, round(share * length)) for length in lengths]
    assert np.array_equal(blanked, choose_blanks(np.array(lengths), share, rng(seed)))


def test_every_word_is_blanked_equally_often() -> None:
    lengths, times, share = np.array([7, 5]), 1000, 0.41
    counts = sum(choose_blanks(lengths, share, rng(0, step)).astype(int) for step in range(times))
    # 3 of 7 and 2 of 5; four standard deviations on each side.
    expected = times * np.repeat([3 / 7, 2 / 5], lengths)
    assert np.abs(counts - expected).max() < 4 * (times * 0.25) ** 0.5


@given(st.lists(st.integers(1, 40), max_size=20), st.integers(1, 90))
def test_batches_of_similar_length(lengths: list[int], budget: int) -> None:
    groups = [group.tolist() for group in length_batches(np.array(lengths, dtype=int), budget)]
    rows = [row for group in groups for row in group]
    assert sorted(rows) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= budget
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
