"""Another microphone, another voice: each band of pitch louder or softer by a smooth curve.

    frames[t, f] + strength * sum over n = 0..waves of  z_n cos(pi n (f + 1/2) / F),   z_n ~ N(0, 1)

A curve of its own for every utterance, the same at every time. n = 0 makes all louder or softer,
n = 1 brighter or duller. It means something only where frames keep such a curve: normalized by
`mean`, they lose it before it could be told.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomEqualizerConfig:
    """`strength` is in the unit of the frames; 0 leaves them as they are."""

    strength: float = bounded(0.0, at_least=0.0, at_most=1000.0)
    waves: int = bounded(4, at_least=0, at_most=1000)


def equalize(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    config: RandomEqualizerConfig,
    random: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """The same generator draws the same curves; padding stays as it is."""
    if not config.strength:
        return frames
    places = (np.arange(frames.shape[2]) + 0.5) / frames.shape[2]
    waves = np.cos(np.pi * np.arange(config.waves + 1)[:, None] * places)
    drawn = random.normal(scale=config.strength, size=(len(frames), len(waves)))
    curves = torch.from_numpy(drawn @ waves).to(frames)
    return torch.where(present[:, :, None], frames + curves[:, None, :], frames)
