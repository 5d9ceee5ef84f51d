"""An utterance whose attention is known: every symbol looks at one place only."""

import numpy as np

from harken.formats.examples import SpokenWord
from harken.report.sound import SoundMaps

# Distinct primes: a swapped axis cannot pass by luck.
LAYERS, HEADS, SYMBOLS, PLACES, FRAMES, BINS = 2, 3, 5, 29, 113, 7
FRAME, FIRST_FRAME = 0.01, 0.0125
PLACE, FIRST_PLACE = 0.04, 0.0275
PEAKS = (3, 7, 11, 19, 23)  # of the last layer's heads


def second(place: int) -> float:
    return FIRST_PLACE + place * PLACE


def pointed(peaks: tuple[int, ...], heads: int = HEADS, places: int = PLACES) -> np.ndarray:
    """Weights [heads, symbols, places] that are 0.9 at the peaks and even elsewhere."""
    weights = np.full((heads, len(peaks), places), 0.1 / (places - 1))
    weights[:, np.arange(len(peaks)), peaks] = 0.9
    return weights


def maps(**changes: object) -> SoundMaps:
    given: dict[str, object] = {
        "spectrogram": np.random.default_rng(0).normal(size=(FRAMES, BINS)),
        "frame_seconds": FRAME,
        "first_frame_seconds": FIRST_FRAME,
        "symbols": ["n", "i", "n", "e", " "],
        "layers": [pointed((0, 1, 2, 3, 4)), pointed(PEAKS)],
        "place_seconds": PLACE,
        "first_place_seconds": FIRST_PLACE,
        "words": [SpokenWord("nine", 0.125, 0.75)],
    }
    return SoundMaps(**(given | changes))  # type: ignore[arg-type]
