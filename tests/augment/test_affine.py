"""Affine maps of images against exact shifts and rotations."""

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from torch import Tensor
from torch.testing import assert_close

from harken.augment.affine import RandomAffineConfig, random_affine

BATCH, CHANNELS, ROWS, COLUMNS = 5, 3, 7, 11
IMAGES = torch.rand(
    BATCH, CHANNELS, ROWS, COLUMNS, generator=torch.Generator().manual_seed(1)
).double()


class Drawn(np.random.Generator):
    """A generator with given draws: (across, down, angle, scale) of every image."""

    def __init__(self, *drawn: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.drawn = drawn

    def uniform(self, low: float, high: float, size: tuple[int, int]) -> np.ndarray:
        assert (low, high) == (-1.0, 1.0)
        return np.tile(self.drawn, (size[0], 1))


def moved(config: RandomAffineConfig, *drawn: float, images: Tensor = IMAGES) -> Tensor:
    return random_affine(images, config, Drawn(*drawn))


def test_the_identity_draws_nothing() -> None:
    random = default_rng(3)
    assert random_affine(IMAGES, RandomAffineConfig(), random) is IMAGES
    assert random.random() == default_rng(3).random()


@pytest.mark.parametrize(("across", "down"), [(1, 0), (-2, 0), (0, 1), (3, -2)])
def test_shifts_by_whole_pixels_repeat_the_edge(across: int, down: int) -> None:
    ours = moved(
        RandomAffineConfig(translate=0.999), across / COLUMNS / 0.999, down / ROWS / 0.999, 0, 0
    )
    rows = (torch.arange(ROWS) - down).clamp(0, ROWS - 1)
    columns = (torch.arange(COLUMNS) - across).clamp(0, COLUMNS - 1)
    assert_close(ours, IMAGES[:, :, rows][..., columns], rtol=0, atol=1e-12)


def test_rotation_by_180_degrees() -> None:
    ours = moved(RandomAffineConfig(degrees=179.999999), 0, 0, 1, 0)
    assert_close(ours, IMAGES.flip(2, 3), rtol=0, atol=1e-5)


def test_rotation_by_90_degrees_preserves_distances_in_pixels() -> None:
    """A pixel two to the right of the center moves to two above it."""
    image = torch.zeros(1, 1, ROWS, COLUMNS, dtype=torch.float64)
    image[0, 0, ROWS // 2, COLUMNS // 2 + 2] = 1
    ours = moved(RandomAffineConfig(degrees=90.0), 0, 0, 1, 0, images=image)[0, 0]
    assert_close(ours[ROWS // 2 - 2, COLUMNS // 2], ours.new_tensor(1.0), rtol=0, atol=1e-9)
    assert ours.sum().item() == pytest.approx(1.0, abs=1e-9)


def test_scale_of_a_square() -> None:
    image = torch.zeros(1, 1, 41, 41, dtype=torch.float64)
    image[0, 0, 16:25, 16:25] = 1  # 9 by 9 about the center
    larger = moved(RandomAffineConfig(scale=0.5), 0, 0, 0, 1, images=image)
    smaller = moved(RandomAffineConfig(scale=0.5), 0, 0, 0, -1, images=image)
    assert larger.sum().item() == pytest.approx(81 * 1.5**2, rel=0.05)
    assert smaller.sum().item() == pytest.approx(81 / 1.5**2, rel=0.05)


def test_each_image_has_its_own_map() -> None:
    config = RandomAffineConfig(translate=0.2, degrees=10.0, scale=0.2)
    alike = IMAGES[:1].expand(BATCH, -1, -1, -1)
    ours = random_affine(alike, config, default_rng(3))
    assert torch.equal(ours, random_affine(alike, config, default_rng(3)))
    assert not torch.allclose(ours, random_affine(alike, config, default_rng(4)))
    assert len({image.sum().item() for image in ours}) == BATCH
