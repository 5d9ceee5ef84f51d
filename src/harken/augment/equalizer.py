"""A random smooth frequency response per utterance, as of another microphone or voice.

    frames[t, f] + strength * sum over n = 0..waves of  z_n cos(pi n (f + 1/2) / F),   z_n ~ N(0, 1)

n = 0 changes the loudness, n = 1 the tilt of the spectrum. Features that are normalized by `mean`
lose the response again.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.config import bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomEqualizerConfig:
    """Random smooth changes of the spectrum."""

    # standard deviation of each cosine, in the unit of the features; 0 disables the equalizer
    strength: float = bounded(0.0, at_least=0.0, at_most=1000.0)
    waves: int = bounded(4, at_least=0, at_most=1000)  # number of cosines after the constant


def equalize(
    frames: Float[Tensor, "B T F"],
    present: Bool[Tensor, "B T"],
    config: RandomEqualizerConfig,
    random: np.random.Generator,
) -> Float[Tensor, "B T F"]:
    """Add a random curve over the bands to each utterance; padding stays as it is."""
    if not config.strength:
        return frames
    positions = (np.arange(frames.shape[2]) + 0.5) / frames.shape[2]
    waves = np.cos(np.pi * np.arange(config.waves + 1)[:, None] * positions)
    drawn = random.normal(scale=config.strength, size=(len(frames), len(waves)))
    curves = torch.from_numpy(drawn @ waves).to(frames)
    return torch.where(present[:, :, None], frames + curves[:, None, :], frames)
