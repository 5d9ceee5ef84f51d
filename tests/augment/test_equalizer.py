"""Curves over the bands: smooth, the same at all times, of the stated size, resumable."""

import numpy as np
import torch

from harken.augment.equalizer import RandomEqualizerConfig, equalize
from harken.batch.bucketing import rng

BATCH, TIMES, BANDS = 211, 5, 23
FRAMES = torch.randn(BATCH, TIMES, BANDS, generator=torch.Generator().manual_seed(1)).double()
PRESENT = torch.arange(TIMES)[None] < torch.tensor([TIMES, 3])[torch.arange(BATCH) % 2][:, None]


def curves(config: RandomEqualizerConfig) -> torch.Tensor:
    return equalize(FRAMES, PRESENT, config, rng(3)) - FRAMES


def test_a_curve_is_the_same_at_all_times_and_padding_is_left() -> None:
    added = curves(RandomEqualizerConfig(strength=0.7))
    assert (added[~PRESENT] == 0).all()
    first = added[:, :1].expand_as(added)[PRESENT]
    torch.testing.assert_close(added[PRESENT], first, rtol=0, atol=1e-12)
    assert len(torch.unique(added[:, 0, 0])) == BATCH, "each utterance has its own"


def test_no_strength_changes_nothing_and_draws_nothing() -> None:
    random = rng(3)
    assert equalize(FRAMES, PRESENT, RandomEqualizerConfig(), random) is FRAMES
    assert random.random() == rng(3).random()


def test_only_the_slow_waves_are_in_a_curve() -> None:
    """By the cosine transform that NumPy's FFT gives of the mirrored curve."""
    added = curves(RandomEqualizerConfig(strength=0.7, waves=2))[:, 0].numpy()
    mirrored = np.concatenate((added, added[:, ::-1]), axis=1)
    strength = np.abs(np.fft.rfft(mirrored, axis=1))
    assert strength[:, 3:].max() < 1e-9 < 1e-3 < strength[:, :3].max(axis=0).min()
    # The coefficient of wave n is F z_n (2 F z_0 for the constant), and z has the stated size.
    drawn = strength[:, :3] / BANDS / np.array([2, 1, 1])
    np.testing.assert_allclose(np.sqrt((drawn**2).mean(axis=0)), 0.7, rtol=0.15)


def test_the_same_generator_draws_the_same_curves() -> None:
    config = RandomEqualizerConfig(strength=0.3)
    assert torch.equal(curves(config), curves(config))
    other = equalize(FRAMES, PRESENT, config, rng(4)) - FRAMES
    assert not torch.allclose(other, curves(config))
