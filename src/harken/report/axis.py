"""Axes with round ticks, formatting of numbers, and placement of labels that do not overlap."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MAX_POWERS = 6  # ticks at powers of ten
_SAME = 1e-6  # relative difference below which tick labels would be equal


class PlotAxis(NamedTuple):
    """An axis from `start` to `end`; `end` is smaller on a reversed axis."""

    start: float
    end: float
    ticks: Sequence[float]
    log: bool = False

    def fraction(self, value: float) -> float:
        """Return the relative position of a value: 0 at the start, 1 at the end."""
        start, end = self.start, self.end
        if self.log:
            start, end, value = math.log(start), math.log(end), math.log(value)
        return (value - start) / (end - start) if end != start else 0.5


def exact_axis(start: float, end: float, *, step_count: int = 5) -> PlotAxis:
    """Return an axis with exactly these ends, and round ticks between them."""
    low, high = sorted((start, end))
    inside = [tick for tick in ticks(low, high, step_count=step_count) if low <= tick <= high]
    return PlotAxis(start, end, inside)


def round_axis(low: float, high: float, *, step_count: int = 5) -> PlotAxis:
    """Return an axis that contains `low` and `high` and has ticks at its ends."""
    values = ticks(low, high, step_count=step_count)
    return PlotAxis(values[0], values[-1], values)


def ticks(low: float, high: float, *, step_count: int = 5) -> list[float]:
    """Return round numbers from at most `low` to at least `high` in about `step_count` steps."""
    assert math.isfinite(low) and math.isfinite(high) and low <= high, (low, high)
    size = max(abs(low), abs(high))
    if high - low <= _SAME * size:
        half = size / 2 or 1.0  # a single value is in the middle
        low, high = low - half, high + half
    min_step = (high - low) / step_count
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= min_step * (1 - 1e-9))
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
    powers = [number for number in inside if f"{number:e}".startswith("1.0")]  # 1.000000e+03
    if len(powers) >= 3:
        inside = powers[:: math.ceil(len(powers) / _MAX_POWERS)]
    return PlotAxis(start, end, inside, log=True)


def _clean(value: float) -> float:
    return float(f"{value:.12g}")  # not 0.30000000000000004


def format_tick(value: float) -> str:
    """Format a tick: 0.05, 2.5, 10 000, 1e−7."""
    size = abs(value)
    if value and not 1e-4 <= size < 1e7:
        mantissa, exponent = f"{value:.3e}".split("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    else:
        # Adding 0.0 changes -0.0 to 0.0.
        text = f"{value + 0.0:,.10f}".rstrip("0").rstrip(".")
        # Four digits are not separated: 2000, but 20 000.
        text = text.replace(",", "\u202f" if size >= 1e4 else "")
    return text.replace("-", "−")


def format_measured(value: float) -> str:
    """Format a measured value with three significant digits."""
    if not math.isfinite(value):
        return "–"
    if not 1e-4 <= abs(value) < 1e7:
        return format_tick(float(f"{value:.2e}"))
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace(",", "\u202f").replace("-", "−")


def format_weight(value: float) -> str:
    """Format a weight with at most two significant digits."""
    return format_tick(float(f"{value:.2g}"))


def stack_labels(
    spans: Iterable[tuple[float, float, float]], limit: float, gap: float
) -> list[tuple[int, bool]]:
    """Return the row of each label, and whether its end (not its start) is aligned with its span.

    `spans` are the start, end and label width of each span, sorted by start. A label is placed in
    the first row with enough space, and is aligned at the end if it would otherwise exceed `limit`.
    """
    row_ends: list[float] = []
    placed = []
    for start, end, width in spans:
        flipped = start + width > limit
        left, right = (end - width, end) if flipped else (start, max(end, start + width))
        row = next((i for i, row_end in enumerate(row_ends) if row_end <= left), len(row_ends))
        row_ends[row : row + 1] = [right + gap]  # replaces the end of the row, or adds a row
        placed.append((row, flipped))
    return placed
