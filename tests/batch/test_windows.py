"""Windows of a stream whose tokens are their indices."""

from collections import Counter

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harken.batch.padding import IGNORE_INDEX
from harken.batch.windows import RandomWindows, sliding_batches, sliding_windows

streams = st.integers(2, 400)
lengths = st.integers(1, 60)


def epoch_of(windows: RandomWindows, steps: int, first: int = 0) -> Tensor:
    return torch.cat([windows.batch(first + step).targets for step in range(steps)])


@given(streams, lengths, st.integers(1, 7), st.integers(0, 2**31), st.integers(0, 1000))
def test_a_batch_is_slices_of_the_stream(
    count: int, length: int, rows: int, seed: int, step: int
) -> None:
    batch = RandomWindows(np.arange(count), length, rows, seed).batch(step)
    assert batch.inputs.shape == (rows, min(length, count - 1))
    assert torch.equal(batch.targets, batch.inputs + 1)
    assert torch.equal(batch.inputs.diff(dim=1), torch.ones_like(batch.inputs)[:, 1:])
    assert batch.inputs.min() >= 0
    assert batch.targets.max() < count


@given(st.integers(3, 400), lengths, st.integers(0, 2**31), st.integers(0, 5))
def test_an_epoch_has_each_target_once_except_less_than_two_windows(
    count: int, length: int, seed: int, epoch: int
) -> None:
    stream = np.arange(count)
    length = min(length, count - 1)
    steps = max(1, (count - 1) // length - 1)
    targets = (
        epoch_of(RandomWindows(stream, length, 1, seed), steps, epoch * steps).flatten().tolist()
    )
    assert max(Counter(targets).values()) == 1
    assert count - 1 - len(targets) < 2 * length


def test_epochs_have_different_offsets_and_orders() -> None:
    windows = RandomWindows(np.arange(1001), 10, 7, seed=3)
    first, second = epoch_of(windows, 14)[:98, 0], epoch_of(windows, 15, 14)[1:99, 0]
    assert len(first.unique()) == 98
    assert (first % 10).unique().numel() == (second % 10).unique().numel() == 1
    assert first[0] % 10 != second[0] % 10
    assert not torch.equal(first.sort().indices, second.sort().indices)
    assert not torch.equal(first, first.sort().values)


def test_all_tokens_occur_in_some_epoch() -> None:
    for count in (12, 31, 40, 41):
        targets = epoch_of(RandomWindows(np.arange(count), 10, 4, seed=1), 300)
        assert targets.unique().tolist() == list(range(1, count))


@given(st.integers(0, 2**31), st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_a_batch_depends_on_seed_and_step_only(seed: int, steps: list[int]) -> None:
    stream = np.arange(211, dtype=np.uint16)
    used = RandomWindows(stream, 13, 5, seed)
    for step in steps:
        batch, fresh = used.batch(step), RandomWindows(stream, 13, 5, seed).batch(step)
        assert torch.equal(batch.inputs, fresh.inputs)
        assert torch.equal(batch.targets, fresh.targets)
    assert not torch.equal(
        used.batch(0).inputs, RandomWindows(stream, 13, 5, seed + 1).batch(0).inputs
    )


@given(streams, st.data())
def test_sliding_windows_count_each_target_once_in_order(count: int, data: st.DataObject) -> None:
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


@given(streams, st.integers(2, 40), st.integers(1, 5))
def test_sliding_batches_are_in_reading_order(count: int, length: int, rows: int) -> None:
    windows = sliding_windows(count, length, length - length // 2)
    batches = list(sliding_batches(np.arange(count), windows, rows, padding_value=0))
    assert all(len(batch.inputs) <= rows for batch in batches)
    for index, expected in ((0, range(count - 1)), (1, range(1, count))):
        counted = [batch[index][batch.targets != IGNORE_INDEX] for batch in batches]
        assert torch.cat(counted).tolist() == list(expected)
