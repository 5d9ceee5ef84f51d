"""Axes with ticks at 1, 2 or 5 times a power of ten, numbers as text, and rows of labels."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MAX_DECADES = 6
_SAME = 1e-6  # relative difference below which tick labels would be equal


class PlotAxis(NamedTuple):
    """An axis from `start` to `end`; `end` is smaller on a reversed axis."""

    start: float
    end: float
    ticks: Sequence[float]
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value: 0 at the start, 1 at the end."""
        start, end = self.start, self.end
        if self.log:
            start, end, value = math.log(start), math.log(end), math.log(value)
        return (value - start) / (end - start) if end != start else 0.5


def exact_axis(start: float, end: float, *, about: int = 5) -> PlotAxis:
    """Return an axis with exactly these ends, and the ticks between them."""
    low, high = sorted((start, end))
    return PlotAxis(
        start, end, [tick for tick in ticks(low, high, about=about) if low <= tick <= high]
    )


def round_axis(low: float, high: float, *, about: int = 5) -> PlotAxis:
    """Return an axis that contains `low` and `high` and has ticks at its ends."""
    steps = ticks(low, high, about=about)
    return PlotAxis(steps[0], steps[-1], steps)


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Return round numbers from at most `low` to at least `high`, in about `about` steps."""
    assert math.isfinite(low) and math.isfinite(high) and low <= high, (low, high)
    size = max(abs(low), abs(high))
    if high - low <= _SAME * size:
        half = size / 2 or 1.0  # centers a single value
        low, high = low - half, high + half
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    # With a tolerance, because 0.3 / 0.1 is slightly more than 3.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_clean(i * step) for i in range(first, last + 1)]


def log_axis(low: float, high: float) -> PlotAxis:
    """Return a logarithmic axis that contains `low` and `high`, both positive."""
    assert 0 < low <= high < math.inf, (low, high)
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    round_numbers = [_clean(m * 10.0**p) for p in range(first, last + 1) for m in (1, 2, 5)]
    start = max(number for number in round_numbers if number <= low)
    end = min(number for number in round_numbers if number >= high and number > start)
    inside = [number for number in round_numbers if start <= number <= end]
    decades = [number for number in inside if f"{number:e}".startswith("1.0")]
    if len(decades) >= 3:
        inside = decades[:: math.ceil(len(decades) / _MAX_DECADES)]
    return PlotAxis(start, end, inside, log=True)


def _clean(value: float) -> float:
    return float(f"{value:.12g}")  # not 0.30000000000000004


def label(value: float) -> str:
    """Format a tick: 0.05, 2.5, 10 000, 1e−7."""
    size = abs(value)
    if value and not 1e-4 <= size < 1e7:
        mantissa, exponent = f"{value:.3e}".split("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    else:
        text = f"{value + 0.0:,.10f}".rstrip("0").rstrip(".")
        # Four digits have no gap: 2000, but 20 000.
        text = text.replace(",", "\u202f" if size >= 1e4 else "")
    return text.replace("-", "−")


def rounded(value: float) -> str:
    """Format a measured value with three significant digits."""
    if not math.isfinite(value):
        return "–"
    if not 1e-4 <= abs(value) < 1e7:
        return label(float(f"{value:.2e}"))
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace(",", "\u202f").replace("-", "−")


def two_digits(value: float) -> str:
    """Format a weight with at most two significant digits."""
    return label(float(f"{value:.2g}"))


def stack_labels(
    spans: Iterable[tuple[float, float, float]], limit: float, gap: float
) -> list[tuple[int, bool]]:
    """Return the row of each label, and whether it ends (instead of starts) at its mark.

    `spans` are start, end and label width of each mark, sorted by start. A label is on the first
    row with enough space, and ends at its mark if it would otherwise exceed `limit`.
    """
    row_ends: list[float] = []
    placed = []
    for start, end, width in spans:
        flipped = start + width > limit
        left, right = (end - width, end) if flipped else (start, max(end, start + width))
        row = next((i for i, row_end in enumerate(row_ends) if row_end <= left), len(row_ends))
        row_ends[row : row + 1] = [right + gap]
        placed.append((row, flipped))
    return placed
