"""What changes an example: sound that is played faster or slower.

    change_speed(s, factor)(t) = s(factor * t)

Pitch and tempo move together, as with a record on a turntable: a voice of another size.
Masks over what has become frames are in `augment/specaugment.py`.
"""

import numpy as np
import soxr
from jaxtyping import Float


def change_speed(
    signal: Float[np.ndarray, "N"], rate: int, factor: float
) -> Float[np.ndarray, "changed"]:
    """The signal at `factor` times its speed, with len(signal) / factor samples."""
    if factor == 1:
        return signal
    # What lasts a second at the false rate lasts 1 / factor seconds at the true one.
    changed: np.ndarray = soxr.resample(signal, rate * factor, rate, quality="HQ")
    return changed
