"""Speed perturbation: change_speed(s, factor)(t) = s(factor * t), which changes pitch and tempo."""

import numpy as np
import soxr
from jaxtyping import Float


def change_speed(
    signal: Float[np.ndarray, "N"], rate: int, factor: float
) -> Float[np.ndarray, "changed"]:
    """Return the signal at `factor` times its speed, with len(signal) / factor samples."""
    if factor == 1:
        return signal
    changed: np.ndarray = soxr.resample(signal, rate * factor, rate, quality="HQ")
    return changed
