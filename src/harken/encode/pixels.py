"""Images as numbers between -1 and 1.

    number = (value / 255 - mean) / deviation,   mean = deviation = 1/2

These are the constants of the Vision Transformer, the same for all channels and corpora, so a run
stores no statistics.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from harken.config import bounded
from harken.formats.image_file import Fit

MEAN = DEVIATION = 0.5
MAX_SIDE = 2048  # pixels or cells


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelsConfig:
    """Images of one size."""

    kind: Literal["pixels"] = "pixels"
    columns: int = bounded(48, at_least=1, at_most=MAX_SIDE)  # width X of the resized image, pixels
    rows: int = bounded(48, at_least=1, at_most=MAX_SIDE)  # height Y of the resized image, pixels
    channels: Literal[1, 3] = 3  # 1 for gray, 3 for RGB
    fit: Fit = "pad"  # how an image of another aspect ratio is fitted to columns and rows

    def encode(self, images: UInt8[np.ndarray, "B Y X K"]) -> Float[Tensor, "B K Y X"]:
        planes = np.divide(images.transpose(0, 3, 1, 2), 255, dtype=np.float32, order="C")
        planes -= MEAN
        planes /= DEVIATION
        return torch.from_numpy(planes)


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureMapsConfig:
    """Feature maps M[x,y,K] of another network."""

    kind: Literal["features"] = "features"
    columns: int = bounded(at_least=1, at_most=MAX_SIDE)  # width X of the maps in cells
    rows: int = bounded(at_least=1, at_most=MAX_SIDE)  # height Y of the maps in cells
    channels: int = bounded(at_least=1)  # number of features K of a cell

    def encode(self, maps: Float[np.ndarray, "B X Y K"]) -> Float[Tensor, "B X Y K"]:
        return torch.tensor(maps, dtype=torch.float32)
