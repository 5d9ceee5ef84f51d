"""Every blank is where it should be, against loops over lists."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.blanks import (
    ClozeQueries,
    choose_blanks,
    cut_evenly,
    like_lengths,
    mask_one_by_one,
    mask_together,
)
from harken.batch.bucketing import seeded
from harken.batch.ragged import Ragged, ragged

PAD = 0
ROWS = st.lists(st.lists(st.integers(4, 99), min_size=1, max_size=13), min_size=1, max_size=7)


def rows_of(lists: list[list[int]]) -> Ragged:
    return ragged([np.array(one, dtype=np.int64) for one in lists])


def lists_of(rows: Ragged) -> list[list[int]]:
    return [one.tolist() for one in np.split(rows.values, np.cumsum(rows.lengths)[:-1])]


def flags_of(asked: ClozeQueries) -> list[list[bool]]:
    return lists_of(Ragged(asked.blanked, asked.rows.lengths))


@given(ROWS, st.randoms(use_true_random=False))
def test_a_batch_shows_rows_and_wants_what_is_blanked(lists: list[list[int]], lot) -> None:
    flags = [[lot.random() < 0.4 for _ in row] for row in lists]
    blanked = np.array([flag for row in flags for flag in row])
    batch = ClozeQueries(rows_of(lists), blanked).batch(PAD)
    longest = max(map(len, lists))
    for number, (row, marks) in enumerate(zip(lists, flags, strict=True)):
        spare = longest - len(row)
        assert batch.tokens[number].tolist() == row + [PAD] * spare
        assert batch.present[number].tolist() == [True] * len(row) + [False] * spare
        assert batch.blanks[number].tolist() == marks + [False] * spare
    wanted = [
        word
        for row, marks in zip(lists, flags, strict=True)
        for word, mark in zip(row, marks, strict=True)
        if mark
    ]
    assert batch.targets.tolist() == wanted
    assert batch.counted == len(wanted)


@given(ROWS, st.sets(st.integers(0, 90), min_size=1))
def test_asking_together_and_one_by_one(lists: list[list[int]], places: set[int]) -> None:
    rows = rows_of(lists)
    chosen = np.array(sorted({place % len(rows.values) for place in places}))
    spots = [(row, place) for row, words in enumerate(lists) for place in range(len(words))]
    wanted = [spots[place] for place in chosen]

    one_by_one = mask_one_by_one(rows, chosen)
    assert lists_of(one_by_one.rows) == [lists[row] for row, _ in wanted]
    assert flags_of(one_by_one) == [
        [place == other for other in range(len(lists[row]))] for row, place in wanted
    ]
    together = mask_together(rows, chosen)
    met = sorted({row for row, _ in wanted})
    assert lists_of(together.rows) == [lists[row] for row in met]
    assert flags_of(together) == [
        [(row, place) in wanted for place in range(len(lists[row]))] for row in met
    ]
    # Both ask in the order of `chosen`.
    for asked in (one_by_one, together):
        assert asked.rows.values[asked.blanked].tolist() == rows.values[chosen].tolist()


@given(ROWS, st.randoms(use_true_random=False))
def test_rows_are_taken_in_any_order(lists: list[list[int]], lot) -> None:
    rows = rows_of(lists)
    asked = ClozeQueries(rows, np.arange(len(rows.values)) % 3 == 0)
    chosen = [lot.randrange(len(lists)) for _ in range(5)]
    taken = asked.take(np.array(chosen))
    assert lists_of(taken.rows) == [lists[one] for one in chosen]
    assert flags_of(taken) == [flags_of(asked)[one] for one in chosen]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 13))
def test_pieces_are_few_and_even(lengths: list[int], most: int) -> None:
    values = np.arange(sum(lengths))
    pieces = cut_evenly(Ragged(values, np.array(lengths)), most)
    assert pieces.values.tolist() == values.tolist()
    left = pieces.lengths.tolist()
    for length in lengths:
        count = (length + most - 1) // most
        mine, left = left[:count], left[count:]
        assert sum(mine) == length
        assert max(mine, default=0) <= most
        assert max(mine, default=0) - min(mine, default=0) <= 1
    assert left == []


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=9), st.floats(0.01, 1.0), st.integers(0, 999)
)
def test_the_share_of_blanks(lengths: list[int], share: float, seed: int) -> None:
    blanked = choose_blanks(np.array(lengths), share, seeded(seed))
    counts = [int(one.sum()) for one in np.split(blanked, np.cumsum(lengths)[:-1])]
    assert counts == [max(1, round(share * length)) for length in lengths]
    assert np.array_equal(blanked, choose_blanks(np.array(lengths), share, seeded(seed)))


def test_every_word_is_blanked_equally_often() -> None:
    lengths, times, share = np.array([7, 5]), 1000, 0.41
    counts = sum(
        choose_blanks(lengths, share, seeded(0, step)).astype(int) for step in range(times)
    )
    # 3 of 7 and 2 of 5; four standard deviations on each side.
    expected = times * np.repeat([3 / 7, 2 / 5], lengths)
    assert np.abs(counts - expected).max() < 4 * (times * 0.25) ** 0.5


@given(st.lists(st.integers(1, 40), max_size=20), st.integers(1, 90))
def test_batches_of_like_length(lengths: list[int], budget: int) -> None:
    groups = [group.tolist() for group in like_lengths(np.array(lengths, dtype=int), budget)]
    assert sorted(one for group in groups for one in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[one] for one in group)
        assert len(group) == 1 or len(group) * longest <= budget
    ordered = [lengths[one] for group in groups for one in group]
    assert ordered == sorted(lengths, reverse=True)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_batch_moves_whole(device: str) -> None:
    batch = ClozeQueries(rows_of([[5, 7]]), np.array([True, False])).batch(PAD)
    assert {part.device for part in batch.to(torch.device(device))} == {torch.device(device)}
