"""Random curves over the bands: smooth, constant in time, of the given strength."""

import numpy as np
import torch
from numpy.random import default_rng

from harken.augment.specaugment import RandomEqualizerConfig, equalize

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
    added = curves(RandomEqualizerConfig(strength=0.7, waves=2))[:, 0].numpy()
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
