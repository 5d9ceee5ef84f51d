"""A picture whose attention is known: every word looks at one place only."""

import numpy as np

from harken.formats.examples import Box
from harken.report.picture import PictureMaps

# Distinct primes: a swapped axis cannot pass by luck.
LAYERS, HEADS, SYMBOLS, COLUMNS, ROWS, PATCH = 2, 3, 5, 7, 11, 13
WORDS = ("one", "nine", "four", "two", "<end>")
PEAKS = (3, 17, 31, 53, 73)  # of the last layer's heads; places, row by row
BOX = Box(29, 31, 23, 19)


def pointed(peaks: tuple[int, ...], heads: int = HEADS, places: int = COLUMNS * ROWS) -> np.ndarray:
    """Weights [heads, symbols, places] that are 0.9 at the peaks and even elsewhere."""
    weights = np.full((heads, len(peaks), places), 0.1 / (places - 1))
    weights[:, np.arange(len(peaks)), peaks] = 0.9
    return weights


def noise(rows: int, columns: int, channels: int = 3) -> np.ndarray:
    random = np.random.default_rng(0)
    return random.integers(0, 256, size=(rows, columns, channels), dtype=np.uint8)


def maps(**changes: object) -> PictureMaps:
    """Squares of `PATCH` pixels, as a patch front makes them."""
    given: dict[str, object] = {
        "image": noise(ROWS * PATCH, COLUMNS * PATCH),
        "symbols": WORDS,
        "layers": [pointed((0, 1, 2, 3, 4)), pointed(PEAKS)],
        "columns": COLUMNS,
        "rows": ROWS,
        "offset": (PATCH - 1) / 2,
        "stride": PATCH,
        "boxes": [None, BOX, None, None, None],
    }
    return PictureMaps(**(given | changes))  # type: ignore[arg-type]


def nearest(found: PictureMaps) -> np.ndarray:
    """The place of every pixel [Y, X] by comparing all distances; -1 where two are as near."""
    assert found.image is not None
    height, width = found.image.shape[:2]

    def along(pixels: int, places: int) -> np.ndarray:
        centres = found.offset + found.stride * np.arange(places)
        distances = np.abs(np.arange(pixels)[:, None] - centres[None])
        near = distances <= distances.min(axis=1, keepdims=True) + 1e-6 * found.stride
        return np.where(near.sum(axis=1) == 1, near.argmax(axis=1), -1)

    x, y = along(width, found.columns), along(height, found.rows)
    both = (x[None] >= 0) & (y[:, None] >= 0)
    return np.where(both, y[:, None] * found.columns + x[None], -1)
