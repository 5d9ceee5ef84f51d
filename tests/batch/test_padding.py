import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.padding import (
    IGNORE_INDEX,
    Seq2SeqBatch,
    TokenBatch,
    next_token_batch,
    pack_rows,
    packed_batch,
    pad,
    shift_targets,
)

from .lists import documents, from_lists, numbers

FILLER = 97


@st.composite
def with_first_targets(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    sequences = draw(documents)
    return sequences, [draw(st.integers(0, len(tokens) + 1)) for tokens in sequences]


def targets_of(sequence: list[int], first: int) -> list[int]:
    return [IGNORE_INDEX if place < first else sequence[place] for place in range(1, len(sequence))]


@given(documents)
def test_pad_on_the_right(sequences: list[list[int]]) -> None:
    tokens, present = pad(from_lists(sequences), FILLER)
    longest = max(map(len, sequences), default=0)
    assert tokens.shape == (len(sequences), longest)
    for row, sequence in enumerate(sequences):
        spare = longest - len(sequence)
        assert tokens[row].tolist() == sequence + [FILLER] * spare
        assert present[row].tolist() == [True] * len(sequence) + [False] * spare


@given(with_first_targets())
def test_targets_equal_a_slow_loop(drawn: tuple[list[list[int]], list[int]]) -> None:
    sequences, first = drawn
    batch = next_token_batch(from_lists(sequences), numbers(first), FILLER)
    width = max(0, max(map(len, sequences), default=0) - 1)
    targets = list(map(targets_of, sequences, first))
    assert batch.targets.tolist() == [row + [IGNORE_INDEX] * (width - len(row)) for row in targets]
    padded = [row + [FILLER] * (width + 1 - len(row)) for row in sequences]
    assert batch.inputs.tolist() == [row[:width] for row in padded]
    assert batch.num_targets == sum(token != IGNORE_INDEX for row in targets for token in row)


@given(with_first_targets(), st.integers(10, 23))
def test_packing_keeps_sequences_whole(
    drawn: tuple[list[list[int]], list[int]], capacity: int
) -> None:
    sequences, first = drawn
    batch = packed_batch(from_lists(sequences), numbers(first), FILLER, capacity)
    assert batch.inputs.shape[1] == capacity
    for number, sequence in enumerate(sequences):
        row, column = torch.nonzero(batch.documents == number, as_tuple=True)
        length = max(0, len(sequence) - 1)
        assert len(row) == length
        if length:
            assert row.unique().numel() == 1
            assert column.tolist() == list(range(int(column[0]), int(column[0]) + length))
        assert batch.inputs[row, column].tolist() == sequence[:-1]
        assert batch.targets[row, column].tolist() == targets_of(sequence, first[number])
        assert batch.positions[row, column].tolist() == list(range(length))
    padding = batch.documents == -1
    assert int(padding.sum()) == padding.numel() - sum(max(0, len(row) - 1) for row in sequences)
    assert batch.inputs[padding].eq(FILLER).all()
    assert batch.targets[padding].eq(IGNORE_INDEX).all()
    unpacked = next_token_batch(from_lists(sequences), numbers(first), FILLER)
    assert batch.num_targets == unpacked.num_targets


def test_packing_by_hand() -> None:
    # 5 columns, then 4 in a new row, then 2 where they fit best: after the 5.
    batch = packed_batch(
        from_lists([[1, 2, 3], [11, 12, 13, 14, 15], [21, 22, 23, 24, 25, 26]]),
        numbers([1, 1, 1]),
        FILLER,
        capacity=7,
    )
    assert batch.inputs.tolist() == [[21, 22, 23, 24, 25, 1, 2], [11, 12, 13, 14, *[FILLER] * 3]]
    assert batch.documents.tolist() == [[2, 2, 2, 2, 2, 0, 0], [1, 1, 1, 1, -1, -1, -1]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1], [0, 1, 2, 3, 0, 0, 0]]


def fewest_rows(lengths: list[int], free: tuple[int, ...], capacity: int) -> int:
    """Try every row for every sequence."""
    if not lengths:
        return len(free)
    length, *others = lengths
    counts = [fewest_rows(others, (*free, capacity - length), capacity)]
    for row, left in enumerate(free):
        if left >= length:
            rest = (*free[:row], left - length, *free[row + 1 :])
            counts.append(fewest_rows(others, rest, capacity))
    return min(counts)


@given(st.lists(st.integers(1, 11), min_size=1, max_size=7))
def test_rows_are_near_the_fewest_possible(lengths: list[int]) -> None:
    row, _ = pack_rows(numbers(lengths), 11)
    # The proven bound of best-fit decreasing, 11/9 of the optimum and a constant below one.
    assert row.max() + 1 <= 11 / 9 * fewest_rows(lengths, (), 11) + 6 / 9


@given(st.integers(0, 2**32))
def test_short_sequences_leave_no_gaps(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 62, size=307)
    row, offset = pack_rows(lengths, 127)
    assert row.max() + 1 <= math.ceil(lengths.sum() / 127) + 1
    ends = (row * 127 + offset + lengths)[np.argsort(row * 127 + offset)]
    starts = np.sort(row * 127 + offset)
    assert (starts[1:] >= ends[:-1]).all(), "sequences overlap"
    assert (offset + lengths <= 127).all()


def test_all_tensors_of_a_batch_move() -> None:
    sequences, first = from_lists([[2, 3, 5]]), numbers([1])
    meta = torch.device("meta")
    packed = packed_batch(sequences, first, FILLER, capacity=7).to(meta)
    assert isinstance(packed, TokenBatch)
    assert [part.device for part in packed if part is not None] == [meta] * 4
    assert next_token_batch(sequences, first, FILLER).to(meta)[2:] == (None, None)


texts = st.lists(st.lists(st.integers(3, 30), max_size=6), min_size=1, max_size=5)


@given(texts)
def test_decoder_inputs_are_targets_shifted_by_one(rows: list[list[int]]) -> None:
    start, end, source = 1, 2, torch.zeros(len(rows), 2, 3)
    batch = Seq2SeqBatch(source, None, *shift_targets(from_lists(rows), start, end, FILLER))
    for text, inputs, targets in zip(rows, batch.inputs, batch.targets, strict=True):
        counted = targets != IGNORE_INDEX
        assert targets[counted].tolist() == [*text, end]
        assert inputs[counted].tolist() == [start, *text]
    assert batch.num_targets == sum(len(text) + 1 for text in rows)
    moved = batch.to(torch.device("meta"))
    assert moved.present is None and moved.source.device.type == "meta"
