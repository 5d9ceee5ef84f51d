"""Keep the size of a token's vector: by mean and variance, or by size alone.

layer   (x - mean) / sqrt(variance + eps) * gain + offset
rms     x / sqrt(mean of squares + eps) * gain
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class NormConfig:
    """Which of the two, and whether before or after what it guards."""

    kind: Literal["layer", "rms"] = "layer"
    place: Literal["pre", "post"] = "pre"
    epsilon: float = bounded(1e-5, above=0.0)

    def build(self, width: int) -> nn.Module:
        if self.kind == "rms":
            return nn.RMSNorm(width, eps=self.epsilon)
        return nn.LayerNorm(width, eps=self.epsilon)
