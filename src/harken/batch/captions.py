"""Pictures side by side with what is said of them."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from harken.batch.padding import IGNORE_INDEX


class CaptionBatch(NamedTuple):
    """Pictures B K Y X or maps B X Y K, and a caption of each as it is told and as it is wanted."""

    pictures: Float[Tensor, "B first second third"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]

    @property
    def counted(self) -> int:
        """Words and ends: what a loss is divided by."""
        return int((self.targets != IGNORE_INDEX).sum())

    def to(self, device: torch.device) -> "CaptionBatch":
        return CaptionBatch(*(part.to(device) for part in self))
