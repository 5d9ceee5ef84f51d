"""Moved pictures: by whole pixels as a loop does it, turned in pixels, edges that go on."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from harken.augment.affine import RandomAffineConfig, random_affine
from harken.batch.bucketing import rng

BATCH, CHANNELS, ROWS, COLUMNS = 5, 3, 7, 11
PICTURES = torch.rand(
    BATCH, CHANNELS, ROWS, COLUMNS, generator=torch.Generator().manual_seed(1)
).double()


class Drawn(np.random.Generator):
    """A generator that draws what it is told: (across, down, turn, zoom) of every picture."""

    def __init__(self, *drawn: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.drawn = drawn

    def uniform(self, low: float, high: float, size: tuple[int, int]) -> np.ndarray:
        assert (low, high) == (-1.0, 1.0)
        return np.tile(self.drawn, (size[0], 1))


def moved(config: RandomAffineConfig, *drawn: float, pictures: Tensor = PICTURES) -> Tensor:
    return random_affine(pictures, config, Drawn(*drawn))


def test_a_still_camera_changes_nothing_and_draws_nothing() -> None:
    random = rng(3)
    assert random_affine(PICTURES, RandomAffineConfig(), random) is PICTURES
    assert random.random() == rng(3).random()


@pytest.mark.parametrize(("across", "down"), [(1, 0), (-2, 0), (0, 1), (3, -2)])
def test_a_shift_by_whole_pixels_moves_them_and_the_edge_goes_on(across: int, down: int) -> None:
    ours = moved(
        RandomAffineConfig(translate=0.999), across / COLUMNS / 0.999, down / ROWS / 0.999, 0, 0
    )
    for y in range(ROWS):
        for x in range(COLUMNS):
            from_y = min(max(y - down, 0), ROWS - 1)
            from_x = min(max(x - across, 0), COLUMNS - 1)
            wanted = PICTURES[:, :, from_y, from_x]
            assert_close(ours[:, :, y, x], wanted, rtol=0, atol=1e-12)


def test_half_a_turn_is_the_picture_upside_down() -> None:
    ours = moved(RandomAffineConfig(degrees=179.999999), 0, 0, 1, 0)
    assert_close(ours, PICTURES.flip(2, 3), rtol=0, atol=1e-5)


def test_a_quarter_turn_in_pixels_whatever_the_sides() -> None:
    """A bright pixel right of the center goes to above or below it, as far away."""
    picture = torch.zeros(1, 1, ROWS, COLUMNS, dtype=torch.float64)
    picture[0, 0, ROWS // 2, COLUMNS // 2 + 2] = 1
    ours = moved(RandomAffineConfig(degrees=90.0), 0, 0, 1, 0, pictures=picture)[0, 0]
    assert_close(ours[ROWS // 2 - 2, COLUMNS // 2], ours.new_tensor(1.0), rtol=0, atol=1e-9)
    assert ours.sum().item() == pytest.approx(1.0, abs=1e-9)


def test_zooming_in_makes_a_square_larger() -> None:
    picture = torch.zeros(1, 1, 41, 41, dtype=torch.float64)
    picture[0, 0, 16:25, 16:25] = 1  # 9 by 9 about the center
    larger = moved(RandomAffineConfig(scale=0.5), 0, 0, 0, 1, pictures=picture)
    smaller = moved(RandomAffineConfig(scale=0.5), 0, 0, 0, -1, pictures=picture)
    assert larger.sum().item() == pytest.approx(81 * 1.5**2, rel=0.05)
    assert smaller.sum().item() == pytest.approx(81 / 1.5**2, rel=0.05)


def test_the_same_generator_draws_the_same_moves_and_each_picture_its_own() -> None:
    config = RandomAffineConfig(translate=0.2, degrees=10.0, scale=0.2)
    alike = PICTURES[:1].expand(BATCH, -1, -1, -1)
    ours = random_affine(alike, config, rng(3))
    assert torch.equal(ours, random_affine(alike, config, rng(3)))
    assert not torch.allclose(ours, random_affine(alike, config, rng(4)))
    assert len({one.sum().item() for one in ours}) == BATCH
