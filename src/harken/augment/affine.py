"""The same scene from a hand that moves: a picture shifted, turned and scaled a little.

    what stands at p is taken from  c + R(turn) (p - c) / scale - shift,     c the center

with shift, turn and the logarithm of scale drawn evenly for every picture. Between pixels it is
interpolated; beyond the edge, the edge goes on. Nothing is mirrored: captions know left from right.
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
    """The largest change either way; all 0 leaves pictures as they are."""

    translate: float = bounded(0.0, at_least=0.0, below=1.0)  # of the picture's sides
    degrees: float = bounded(0.0, at_least=0.0, below=180.0)  # degrees
    scale: float = bounded(0.0, at_least=0.0, below=1.0)  # 0.1 is from 1 / 1.1 to 1.1 times

    @property
    def still(self) -> bool:
        return not (self.translate or self.degrees or self.scale)


def random_affine(
    pictures: Float[Tensor, "B K Y X"], config: RandomAffineConfig, random: np.random.Generator
) -> Float[Tensor, "B K Y X"]:
    """The same generator draws the same moves."""
    if config.still:
        return pictures
    drawn = random.uniform(-1.0, 1.0, size=(len(pictures), 4))
    across, down = 2 * config.translate * drawn[:, :2].T  # grid_sample counts a side as 2
    angle = np.radians(config.degrees) * drawn[:, 2]
    size = (1 + config.scale) ** -drawn[:, 3]
    # Turning happens in pixels, and a side counts 2 however long it is.
    stretch = pictures.shape[2] / pictures.shape[3]
    cosine, sine = size * np.cos(angle), size * np.sin(angle)
    rows = [
        np.stack((cosine, -sine * stretch, -across), axis=-1),
        np.stack((sine / stretch, cosine, -down), axis=-1),
    ]
    moves = torch.from_numpy(np.stack(rows, axis=1)).to(pictures)
    grid = F.affine_grid(moves, list(pictures.shape), align_corners=False)
    return F.grid_sample(pictures, grid, padding_mode="border", align_corners=False)
