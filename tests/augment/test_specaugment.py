"""Masks are located by comparison: all values of the input are distinct."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from torch import Tensor

from harken.augment.specaugment import (
    RandomEqualizerConfig,
    SpecAugmentConfig,
    draw_span_mask,
    equalize,
    spec_augment,
)

OFF: dict[str, Any] = {"time_masks": 0, "frequency_masks": 0}
LENGTHS = [31, 17, 1, 0, 7]


def random_frames(
    lengths: list[int], features: int = 11, filler: float = 0.0
) -> tuple[Tensor, Tensor]:
    present = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    frames = torch.from_numpy(np.random.default_rng(3).normal(size=(*present.shape, features)))
    return frames.masked_fill(~present[:, :, None], filler), present


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 31), min_size=1, max_size=7).filter(any),
    st.integers(0, 999),
    st.builds(
        SpecAugmentConfig,
        time_masks=st.integers(0, 5),
        time_width=st.integers(0, 40),
        time_ratio=st.sampled_from([0.0, 0.3, 1.0]),
        frequency_masks=st.integers(0, 5),
        frequency_width=st.integers(0, 13),
    ),
)
def test_masked_values_are_means_and_some_values_stay(
    lengths: list[int], seed: int, config: SpecAugmentConfig
) -> None:
    frames, present = random_frames(lengths, filler=-77.0)
    before = frames.clone()
    masked = spec_augment(frames, present, config, default_rng(seed))
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
        max_width = min(config.time_width, int(config.time_ratio * length))
        assert whole_frames.sum() <= config.time_masks * max_width
        assert whole_bands.sum() <= config.frequency_masks * config.frequency_width


def test_a_mask_is_contiguous_and_its_width_and_start_are_uniform() -> None:
    config = SpecAugmentConfig(
        time_masks=1, time_width=6, time_ratio=0.5, frequency_masks=0, frequency_width=0
    )
    frames, present = random_frames([17] * 4001, features=1)
    hidden = (spec_augment(frames, present, config, default_rng(5)) != frames)[..., 0].numpy()
    edges = np.abs(np.diff(hidden.astype(int), axis=1, prepend=0, append=0)).sum(axis=1)
    assert set(edges) == {0, 2}
    widths = np.bincount(hidden.sum(axis=1), minlength=7)
    assert len(widths) == 7
    # Four standard deviations.
    assert np.abs(widths - 4001 / 7).max() < 4 * np.sqrt(4001 * 6 / 49)
    # A mask of six frames has twelve possible starts.
    starts = np.bincount(hidden[hidden.sum(axis=1) == 6].argmax(axis=1), minlength=12)
    assert len(starts) == 12
    assert np.abs(starts - starts.mean()).max() < 4 * np.sqrt(starts.mean())


def test_maximum_widths_of_short_and_long_utterances() -> None:
    config = SpecAugmentConfig(time_masks=1, time_width=5, time_ratio=0.3, frequency_masks=0)
    frames, present = random_frames([7] * 500 + [97] * 500, features=1)
    widths = (spec_augment(frames, present, config, default_rng(1)) != frames)[..., 0].sum(dim=1)
    assert (int(widths[:500].max()), int(widths[500:].max())) == (2, 5)


def test_masks_never_cover_a_whole_row() -> None:
    sizes = np.array([13, 2, 1, 0])
    hidden = draw_span_mask(sizes, sizes, 50, 13, default_rng(0))
    assert hidden.sum(axis=1).max() <= 12
    assert all(not row[size:].any() for row, size in zip(hidden, sizes, strict=True))
    assert (sizes - hidden.sum(axis=1) >= np.minimum(sizes, 1)).all()
    assert hidden[0].any() and hidden[1].any()


def test_without_masks_and_warp_nothing_changes() -> None:
    frames, present = random_frames(LENGTHS)
    random = default_rng(1)
    assert spec_augment(frames, present, SpecAugmentConfig(**OFF), random) is frames
    assert random.integers(1 << 40) == default_rng(1).integers(1 << 40)


def test_equal_generators_draw_equal_masks() -> None:
    frames, present = random_frames(LENGTHS)
    config = SpecAugmentConfig(time_warp=5)
    first, again, later = (
        spec_augment(frames, present, config, default_rng(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 31), min_size=1, max_size=5).filter(any), st.integers(0, 999))
def test_a_warp_is_piecewise_linear(lengths: list[int], seed: int) -> None:
    """The value of each frame is its time."""
    max_shift = 5
    _, present = random_frames(lengths)
    time = torch.arange(max(lengths), dtype=torch.float64).expand(len(lengths), -1)[..., None]
    warped = spec_augment(
        time, present, SpecAugmentConfig(time_warp=max_shift, **OFF), default_rng(seed)
    )
    for row, length in zip(warped[..., 0], lengths, strict=True):
        assert torch.equal(row[length:], time[0, length:, 0])
        if length < 5:  # too short to warp
            assert torch.equal(row, time[0, :, 0])
            continue
        assert (row[0], row[length - 1]) == (0, length - 1)
        steps = row[:length].diff()
        assert (steps > 0).all()
        assert (row[:length] - time[0, :length, 0]).abs().max() < max_shift + 1e-9
        # Steps are equal on each side of the corner.
        corners = (steps.diff().abs() > 1e-9).sum()
        assert corners <= 2


def test_shifts_of_the_warped_point() -> None:
    lengths = [31] * 2000
    _, present = random_frames(lengths)
    time = torch.arange(31, dtype=torch.float64).expand(2000, -1)[..., None]
    warped = spec_augment(time, present, SpecAugmentConfig(time_warp=3, **OFF), default_rng(1))
    shifts = (warped - time).abs().amax(dim=(1, 2))
    # The warped point is a frame, so the largest distance is the integer that was drawn.
    assert {round(shift) for shift in shifts.tolist()} == {0, 1, 2, 3}
    assert shifts.max() == pytest.approx(3)


# Random equalizer

BATCH, TIMES, BANDS = 211, 5, 23
FRAMES = torch.randn(BATCH, TIMES, BANDS, generator=torch.Generator().manual_seed(1)).double()
PRESENT = torch.arange(TIMES)[None] < torch.tensor([TIMES, 3])[torch.arange(BATCH) % 2][:, None]


def curves(config: RandomEqualizerConfig) -> torch.Tensor:
    return equalize(FRAMES, PRESENT, config, default_rng(3)) - FRAMES


def test_a_curve_is_constant_in_time_and_padding_is_unchanged() -> None:
    added = curves(RandomEqualizerConfig(strength=0.7))
    assert (added[~PRESENT] == 0).all()
    first = added[:, :1].expand_as(added)[PRESENT]
    torch.testing.assert_close(added[PRESENT], first, rtol=0, atol=1e-12)
    assert len(torch.unique(added[:, 0, 0])) == BATCH, "the curves differ"


def test_without_strength_nothing_changes() -> None:
    random = default_rng(3)
    assert equalize(FRAMES, PRESENT, RandomEqualizerConfig(), random) is FRAMES
    assert random.random() == default_rng(3).random()


def test_a_curve_has_only_the_first_cosines() -> None:
    """The FFT of the mirrored curve is its cosine transform."""
    added = curves(RandomEqualizerConfig(strength=0.7, cosines=2))[:, 0].numpy()
    mirrored = np.concatenate((added, added[:, ::-1]), axis=1)
    strength = np.abs(np.fft.rfft(mirrored, axis=1))
    assert strength[:, 3:].max() < 1e-9 < 1e-3 < strength[:, :3].max(axis=0).min()
    # The coefficient of wave n is F z_n (2 F z_0 for the constant), and z has deviation `strength`.
    drawn = strength[:, :3] / BANDS / np.array([2, 1, 1])
    np.testing.assert_allclose(np.sqrt((drawn**2).mean(axis=0)), 0.7, rtol=0.15)


def test_equal_generators_draw_equal_curves() -> None:
    config = RandomEqualizerConfig(strength=0.3)
    assert torch.equal(curves(config), curves(config))
    other = equalize(FRAMES, PRESENT, config, default_rng(4)) - FRAMES
    assert not torch.allclose(other, curves(config))
