"""A sound file that was opened and found whole, and the sentence for one that was not.

Every format is read as the same record, so that what cuts, mixes and resamples (audio.py) knows
none of them. What is not here: the formats (containers.py, sphere.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from harken.errors import UserError

CONVERT = "convert it to WAV, for example with `ffmpeg -i OLD NEW.wav`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sound:
    """What the header says; a frame is one sample of each channel."""

    name: str  # for sentences
    rate: int  # frames a second
    channels: int
    frames: int
    read: Callable[[int, int], Float[np.ndarray, "frames channels"]]  # (first, count), -1 to 1

    @property
    def seconds(self) -> float:
        return self.frames / self.rate


def damaged(name: str, found: str) -> UserError:
    """For a file that is not what its header says."""
    return UserError(
        f"{name}: found {found}, wanted a whole sound file",
        fix="copy, download or record it again",
    )


def cut_short(name: str, *, rate: int, frame_bytes: int, found: int, promised: int) -> UserError:
    """For a file that ends before the bytes of sound that its header promises."""
    there, wanted = (count // frame_bytes / rate for count in (found, promised))
    return UserError(
        f"{name}: found {there:.3f} s of sound ({found} bytes), "
        f"wanted the {wanted:.3f} s ({promised} bytes) that its header promises",
        fix="the file was cut short: copy, download or record it again",
    )
