"""Random affine maps of images: shift, rotation and scale.

    output(p) = input(c + R(angle) (p - c) / scale - shift),     c the center

Shift, angle and the logarithm of scale are uniform and drawn per image. Pixels are interpolated,
and edge pixels repeat outside. Images are not mirrored, since captions mention left and right.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomAffineConfig:
    """Random affine augmentation: the maximum change in either direction; 0 is none."""

    # largest shift as a fraction of the image's sides
    translate: float = bounded(0.0, at_least=0.0, below=1.0)
    degrees: float = bounded(0.0, at_least=0.0, below=180.0)  # largest rotation in degrees
    scale: float = bounded(0.0, at_least=0.0, below=1.0)  # 0.1 scales by a factor of 1/1.1 to 1.1

    @property
    def is_identity(self) -> bool:
        return not (self.translate or self.degrees or self.scale)


def random_affine(
    images: Float[Tensor, "B K Y X"], config: RandomAffineConfig, random: np.random.Generator
) -> Float[Tensor, "B K Y X"]:
    """Apply a random affine map to each image."""
    if config.is_identity:
        return images
    drawn = random.uniform(-1.0, 1.0, size=(len(images), 4))
    across, down = 2 * config.translate * drawn[:, :2].T  # a side has length 2 in grid_sample
    angle = np.radians(config.degrees) * drawn[:, 2]
    size = (1 + config.scale) ** -drawn[:, 3]
    # The rotation is in pixels, while both sides have length 2.
    ratio = images.shape[2] / images.shape[3]
    cosine, sine = size * np.cos(angle), size * np.sin(angle)
    rows = [
        np.stack((cosine, -sine * ratio, -across), axis=-1),
        np.stack((sine / ratio, cosine, -down), axis=-1),
    ]
    maps = torch.from_numpy(np.stack(rows, axis=1)).to(images)
    grid = F.affine_grid(maps, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
