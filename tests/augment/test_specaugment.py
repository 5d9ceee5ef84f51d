"""What is hidden is found by comparing: masks are drawn over numbers without a twin."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harken.augment.specaugment import SpecAugmentConfig, augment, spans
from harken.batch.bucketing import rng

OFF: dict[str, Any] = {"time_masks": 0, "frequency_masks": 0}
LENGTHS = [31, 17, 1, 0, 7]


def drawn(lengths: list[int], features: int = 11, filler: float = 0.0) -> tuple[Tensor, Tensor]:
    present = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    frames = torch.from_numpy(np.random.default_rng(3).normal(size=(*present.shape, features)))
    return frames.masked_fill(~present[:, :, None], filler), present


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 31), min_size=1, max_size=7).filter(any),
    st.integers(0, 999),
    st.integers(0, 5),
    st.integers(0, 40),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(0, 5),
    st.integers(0, 13),
)
def test_masks_are_the_mean_of_what_is_there_and_leave_something(
    lengths: list[int],
    seed: int,
    time_masks: int,
    time_width: int,
    share: float,
    frequency_masks: int,
    frequency_width: int,
) -> None:
    frames, present = drawn(lengths, filler=-77.0)
    config = SpecAugmentConfig(
        time_masks=time_masks,
        time_width=time_width,
        time_ratio=share,
        frequency_masks=frequency_masks,
        frequency_width=frequency_width,
    )
    before = frames.clone()
    masked = augment(frames, present, config, rng(seed))
    assert torch.equal(frames, before)
    for row, new, length in zip(frames, masked, lengths, strict=True):
        assert (new[length:] == -77).all()
        changed = (new != row)[:length]
        # A single frame is its own mean.
        if length < 2:
            assert not changed.any()
            continue
        mean = row[:length].mean(dim=0).expand(length, -1)
        torch.testing.assert_close(new[:length][changed], mean[changed])
        whole_frames, whole_bands = changed.all(dim=1), changed.all(dim=0)
        assert torch.equal(changed, whole_frames[:, None] | whole_bands[None, :])
        assert not changed.all()
        assert whole_frames.sum() <= time_masks * min(time_width, int(share * length))
        assert whole_bands.sum() <= frequency_masks * frequency_width


def test_one_mask_is_one_stretch_and_every_width_is_as_likely() -> None:
    config = SpecAugmentConfig(
        time_masks=1, time_width=6, time_ratio=0.5, frequency_masks=0, frequency_width=0
    )
    frames, present = drawn([17] * 4001, features=1)
    hidden = (augment(frames, present, config, rng(5)) != frames)[..., 0].numpy()
    edges = np.abs(np.diff(hidden.astype(int), axis=1, prepend=0, append=0)).sum(axis=1)
    assert set(edges) == {0, 2}
    widths = np.bincount(hidden.sum(axis=1), minlength=7)
    assert len(widths) == 7
    # Four standard deviations of a share of one seventh.
    assert np.abs(widths - 4001 / 7).max() < 4 * np.sqrt(4001 * 6 / 49)
    # A mask of six has twelve places to begin at.
    starts = np.bincount(hidden[hidden.sum(axis=1) == 6].argmax(axis=1), minlength=12)
    assert len(starts) == 12
    assert np.abs(starts - starts.mean()).max() < 4 * np.sqrt(starts.mean())


def test_the_share_bounds_short_utterances_and_the_width_long_ones() -> None:
    config = SpecAugmentConfig(time_masks=1, time_width=5, time_ratio=0.3, frequency_masks=0)
    frames, present = drawn([7] * 500 + [97] * 500, features=1)
    widths = (augment(frames, present, config, rng(1)) != frames)[..., 0].sum(dim=1)
    assert (int(widths[:500].max()), int(widths[500:].max())) == (2, 5)


def test_a_row_that_masks_would_cover_keeps_a_place() -> None:
    sizes = np.array([13, 2, 1, 0])
    hidden = spans(sizes, sizes, 50, 13, rng(0))
    assert hidden.sum(axis=1).max() <= 12
    assert all(not row[size:].any() for row, size in zip(hidden, sizes, strict=True))
    assert (sizes - hidden.sum(axis=1) >= np.minimum(sizes, 1)).all()
    assert hidden[0].any() and hidden[1].any()


def test_normalized_frames_are_masked_with_zeros() -> None:
    frames, present = drawn([31])
    frames = frames - frames.mean(dim=1, keepdim=True)
    masked = augment(frames, present, SpecAugmentConfig(), rng(2))
    changed = masked != frames
    assert changed.any()
    assert masked[changed].abs().max() < 1e-12


def test_nothing_asked_for_nothing_done() -> None:
    frames, present = drawn(LENGTHS)
    random = rng(1)
    assert augment(frames, present, SpecAugmentConfig(**OFF), random) is frames
    assert random.integers(1 << 40) == rng(1).integers(1 << 40)


def test_a_resumed_run_draws_the_same() -> None:
    frames, present = drawn(LENGTHS)
    config = SpecAugmentConfig(time_warp=5)
    one, other, later = (augment(frames, present, config, rng(7, step)) for step in (1, 1, 2))
    assert torch.equal(one, other)
    assert not torch.equal(one, later)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 31), min_size=1, max_size=5).filter(any), st.integers(0, 999))
def test_a_warp_is_two_lines(lengths: list[int], seed: int) -> None:
    """A frame that holds its own time tells from where it came."""
    most = 5
    _, present = drawn(lengths)
    time = torch.arange(max(lengths), dtype=torch.float64).expand(len(lengths), -1)[..., None]
    warped = augment(time, present, SpecAugmentConfig(time_warp=most, **OFF), rng(seed))
    for row, length in zip(warped[..., 0], lengths, strict=True):
        assert torch.equal(row[length:], time[0, length:, 0])
        if length < 5:  # neither of two parts could give way
            assert torch.equal(row, time[0, :, 0])
            continue
        assert (row[0], row[length - 1]) == (0, length - 1)
        steps = row[:length].diff()
        assert (steps > 0).all()
        assert (row[:length] - time[0, :length, 0]).abs().max() < most + 1e-9
        # But for the one step across the corner, steps are equal on each side of it.
        corners = (steps.diff().abs() > 1e-9).sum()
        assert corners <= 2


def test_warps_reach_as_far_as_they_may() -> None:
    lengths = [31] * 2000
    _, present = drawn(lengths)
    time = torch.arange(31, dtype=torch.float64).expand(2000, -1)[..., None]
    warped = augment(time, present, SpecAugmentConfig(time_warp=3, **OFF), rng(1))
    shifts = (warped - time).abs().amax(dim=(1, 2))
    # The point itself lies on a place, so the greatest distance is the whole number drawn.
    assert {round(one) for one in shifts.tolist()} == {0, 1, 2, 3}
    assert shifts.max() == pytest.approx(3)
