"""Ticks of an axis at 1, 2 or 5 times a power of ten, numbers as text, and rows of labels."""

import math
from collections.abc import Iterable

_MAX_DECADES = 6
_SAME = 1e-6  # relative difference below which tick labels would be equal


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Return round numbers from at most `low` to at least `high`, in roughly `about` steps."""
    assert math.isfinite(low) and math.isfinite(high) and low <= high, (low, high)
    size = max(abs(low), abs(high))
    if high - low <= _SAME * size:
        reach = size / 2 or 1.0  # centers a single value
        low, high = low - reach, high + reach
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    # With slack: 0.3 / 0.1 must not count as more than three steps.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_clean(i * step) for i in range(first, last + 1)]


def log_axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return the ends of a logarithmic axis around `low`..`high`, and its ticks; all positive."""
    assert 0 < low <= high < math.inf, (low, high)
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    round_numbers = [_clean(m * 10.0**p) for p in range(first, last + 1) for m in (1, 2, 5)]
    bottom = max(m for m in round_numbers if m <= low)
    top = min(m for m in round_numbers if m >= high and m > bottom)
    inside = [m for m in round_numbers if bottom <= m <= top]
    decades = [m for m in inside if f"{m:e}".startswith("1.0")]
    if len(decades) >= 3:
        inside = decades[:: math.ceil(len(decades) / _MAX_DECADES)]
    return bottom, top, inside


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
    ends: list[float] = []  # of the last label of each row
    placed = []
    for start, end, width in spans:
        flipped = start + width > limit
        left, right = (end - width, end) if flipped else (start, max(end, start + width))
        row = next((i for i, free in enumerate(ends) if free <= left), len(ends))
        ends[row : row + 1] = [right + gap]
        placed.append((row, flipped))
    return placed
