"""Pictures -> numbers between -1 and 1.

    number = (value / 255 - mean) / deviation,   mean = deviation = 1/2

The constants are those of the Vision Transformer, the same for every channel and every corpus: a
picture means the same numbers whatever the run was trained on, and no statistics are stored with
it. (ImageNet's own means matter to weights that were trained with them; there are none here.)
Files are read and resized in `formats/images/`.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from harken.config import bounded
from harken.formats.picture import Fit

WHITE = 255
MEAN = 0.5
DEVIATION = 0.5
MAX_SIDE = 2048  # pixels or places


@dataclass(frozen=True, kw_only=True, slots=True)
class PixelsConfig:
    """Pictures, and the size that each is brought to."""

    kind: Literal["pixels"] = "pixels"
    columns: int = bounded(48, at_least=1, at_most=MAX_SIDE)  # X
    rows: int = bounded(48, at_least=1, at_most=MAX_SIDE)  # Y
    channels: Literal[1, 3] = 3  # K: gray, or red, green and blue
    fit: Fit = "pad"  # of a file whose sides are in another proportion

    def encode(self, pictures: UInt8[np.ndarray, "B Y X K"]) -> Float[Tensor, "B K Y X"]:
        return as_numbers(pictures)


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureMapsConfig:
    """Maps M[x,y,K] that another network made: they are numbers already."""

    kind: Literal["features"] = "features"
    columns: int = bounded(at_least=1, at_most=MAX_SIDE)  # X
    rows: int = bounded(at_least=1, at_most=MAX_SIDE)  # Y
    channels: int = bounded(at_least=1)  # K

    def encode(self, maps: Float[np.ndarray, "B X Y K"]) -> Float[Tensor, "B X Y K"]:
        return torch.tensor(maps, dtype=torch.float32)


def as_numbers(pictures: UInt8[np.ndarray, "B Y X K"]) -> Float[Tensor, "B K Y X"]:
    """What a model reads; the pictures are copied, and may be part of a file."""
    planes = np.divide(pictures.transpose(0, 3, 1, 2), WHITE, dtype=np.float32, order="C")
    planes -= MEAN
    planes /= DEVIATION
    return torch.from_numpy(planes)


def as_picture(numbers: Float[Tensor, "B K Y X"]) -> UInt8[np.ndarray, "B Y X K"]:
    """The way back, for showing: what `as_numbers` has read, exactly; beyond the range, its end."""
    values = (numbers.detach().cpu() * DEVIATION + MEAN) * WHITE
    shown = values.round().clamp(0, WHITE).to(torch.uint8)
    return shown.permute(0, 2, 3, 1).contiguous().numpy()
