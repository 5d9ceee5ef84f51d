"""Windows of a stream whose tokens are their own places, so that a batch says where it was cut."""

from collections import Counter

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harken.batch.padding import IGNORE_INDEX
from harken.batch.windows import Windows, covering_batches, sliding_windows

streams = st.integers(2, 400)
lengths = st.integers(1, 60)


def epoch_of(windows: Windows, steps: int, first: int = 0) -> Tensor:
    return torch.cat([windows.batch(first + step).targets for step in range(steps)])


@given(streams, lengths, st.integers(1, 7), st.integers(0, 2**31), st.integers(0, 1000))
def test_a_batch_is_stretches_of_the_stream(
    count: int, length: int, rows: int, seed: int, step: int
) -> None:
    batch = Windows(np.arange(count), length, rows, seed).batch(step)
    assert batch.inputs.shape == (rows, min(length, count - 1))
    assert torch.equal(batch.targets, batch.inputs + 1)
    assert torch.equal(batch.inputs.diff(dim=1), torch.ones_like(batch.inputs)[:, 1:])
    assert batch.inputs.min() >= 0
    assert batch.targets.max() < count


@given(st.integers(3, 400), lengths, st.integers(0, 2**31), st.integers(0, 5))
def test_an_epoch_meets_every_target_once_but_for_less_than_two_windows(
    count: int, length: int, seed: int, epoch: int
) -> None:
    stream = np.arange(count)
    length = min(length, count - 1)
    steps = max(1, (count - 1) // length - 1)
    targets = epoch_of(Windows(stream, length, 1, seed), steps, epoch * steps).flatten().tolist()
    assert max(Counter(targets).values()) == 1
    assert count - 1 - len(targets) < 2 * length


def test_epochs_begin_elsewhere_and_follow_another_order() -> None:
    windows = Windows(np.arange(1001), 10, 7, seed=3)
    first, second = epoch_of(windows, 14)[:98, 0], epoch_of(windows, 15, 14)[1:99, 0]
    assert len(first.unique()) == 98
    assert (first % 10).unique().numel() == (second % 10).unique().numel() == 1
    assert first[0] % 10 != second[0] % 10
    assert not torch.equal(first.sort().indices, second.sort().indices)
    assert not torch.equal(first, first.sort().values)


def test_in_time_every_token_is_met() -> None:
    for count in (12, 31, 40, 41):
        targets = epoch_of(Windows(np.arange(count), 10, 4, seed=1), 300)
        assert targets.unique().tolist() == list(range(1, count))


@given(st.integers(0, 2**31), st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_a_batch_depends_on_seed_and_step_alone(seed: int, steps: list[int]) -> None:
    stream = np.arange(211, dtype=np.uint16)
    used = Windows(stream, 13, 5, seed)
    for step in steps:
        batch, fresh = used.batch(step), Windows(stream, 13, 5, seed).batch(step)
        assert torch.equal(batch.inputs, fresh.inputs)
        assert torch.equal(batch.targets, fresh.targets)
    assert not torch.equal(used.batch(0).inputs, Windows(stream, 13, 5, seed + 1).batch(0).inputs)


@given(streams, st.data())
def test_a_cover_counts_every_target_once_in_order(count: int, data: st.DataObject) -> None:
    length = data.draw(lengths)
    stride = data.draw(st.integers(1, length))
    windows = sliding_windows(count, length, stride)
    counted: list[int] = []
    for number, (start, size, first) in enumerate(zip(*windows, strict=True)):
        assert 1 <= first < size <= length + 1
        tokens = list(range(start, start + size))
        counted += tokens[first:]
        if number > 0:
            assert start == number * stride
            assert first - 1 >= length - stride
    assert counted == list(range(1, count))


def test_a_cover_by_hand() -> None:
    assert [part.tolist() for part in sliding_windows(11, 4, 4)] == [
        [0, 4, 8],
        [5, 5, 3],
        [1, 1, 1],
    ]
    assert [part.tolist() for part in sliding_windows(11, 4, 2)] == [
        [0, 2, 4, 6],
        [5] * 4,
        [1, 3, 3, 3],
    ]
    assert [part.tolist() for part in sliding_windows(5, 4, 2)] == [[0], [5], [1]]
    assert [part.tolist() for part in sliding_windows(6, 4, 3)] == [[0, 3], [5, 3], [1, 2]]


@given(streams, st.integers(2, 40), st.integers(1, 5))
def test_batches_of_a_cover_keep_the_reading_order(count: int, length: int, rows: int) -> None:
    windows = sliding_windows(count, length, length - length // 2)
    batches = list(covering_batches(np.arange(count), windows, rows, filler=0))
    assert all(len(batch.inputs) <= rows for batch in batches)
    read = [(batch.inputs[batch.targets != IGNORE_INDEX], batch.targets) for batch in batches]
    targets = torch.cat([target[target != IGNORE_INDEX] for _, target in read])
    assert targets.tolist() == list(range(1, count))
    assert torch.cat([inputs for inputs, _ in read]).tolist() == list(range(count - 1))
