"""Random affine maps of images: shift, rotation and scale.

    output(p) = input(c + R(angle) (p - c) / scale - shift),     c the center

Shift, angle and the logarithm of scale are drawn uniformly for each image. Pixels are interpolated;
positions outside of the image have the value of the nearest edge pixel. Images are not flipped,
since captions mention left and right.
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
    """Maximum random shift, rotation and scaling of images; 0 disables each of them."""

    # maximum shift as a fraction of the sides of the image
    translate: float = bounded(0.0, at_least=0.0, below=1.0)
    degrees: float = bounded(0.0, at_least=0.0, below=180.0)  # maximum rotation in degrees
    # maximum relative change of size: 0.1 scales by a factor of 1/1.1 to 1.1
    scale: float = bounded(0.0, at_least=0.0, below=1.0)

    @property
    def is_identity(self) -> bool:
        return not (self.translate or self.degrees or self.scale)


def random_affine(
    images: Float[Tensor, "B K Y X"], config: RandomAffineConfig, rng: np.random.Generator
) -> Float[Tensor, "B K Y X"]:
    """Apply a random affine map to each image."""
    if config.is_identity:
        return images
    draws = rng.uniform(-1.0, 1.0, size=(len(images), 4))
    shift_x, shift_y = 2 * config.translate * draws[:, :2].T  # in affine_grid, a side has length 2
    angle = np.radians(config.degrees) * draws[:, 2]
    inverse_scale = (1 + config.scale) ** -draws[:, 3]
    # affine_grid gives both sides the same length, so a rotation needs their ratio in pixels.
    ratio = images.shape[2] / images.shape[3]
    cosine, sine = inverse_scale * np.cos(angle), inverse_scale * np.sin(angle)
    rows = [
        np.stack((cosine, -sine * ratio, -shift_x), axis=-1),
        np.stack((sine / ratio, cosine, -shift_y), axis=-1),
    ]
    matrices = torch.from_numpy(np.stack(rows, axis=1)).to(images)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
