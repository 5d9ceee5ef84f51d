"""Where an axis puts its ticks: at round numbers, 1, 2 or 5 times a power of ten."""

import math

_MOST_DECADES = 6
_SAME = 1e-6  # of their size; below, ticks would differ only in digits that no label shows


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`, roughly `about` steps."""
    assert math.isfinite(low) and math.isfinite(high) and low <= high, (low, high)
    size = max(abs(low), abs(high))
    if high - low <= _SAME * size:
        reach = size / 2 or 1.0  # one value gets room on both sides
        low, high = low - reach, high + reach
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    # A hair of slack: 0.3 / 0.1 must not count as more than three steps.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_clean(i * step) for i in range(first, last + 1)]


def log_axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """The ends of a logarithmic axis around `low`..`high`, and its ticks; all are positive."""
    assert 0 < low <= high < math.inf, (low, high)
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    round_numbers = [_clean(m * 10.0**p) for p in range(first, last + 1) for m in (1, 2, 5)]
    bottom = max(m for m in round_numbers if m <= low)
    top = min(m for m in round_numbers if m >= high and m > bottom)
    inside = [m for m in round_numbers if bottom <= m <= top]
    decades = [m for m in inside if f"{m:e}".startswith("1.0")]
    if len(decades) < 3:
        return bottom, top, inside
    return bottom, top, decades[:: math.ceil(len(decades) / _MOST_DECADES)]


def _clean(value: float) -> float:
    return float(f"{value:.12g}")  # 0.30000000000000004 is not a round number


def label(value: float) -> str:
    """A tick as text: 0.05, 2.5, 10 000, 1e−7."""
    size = abs(value)
    if value == 0:
        shown = "0"
    elif size < 1e-4 or size >= 1e7:
        mantissa, exponent = f"{value:.3e}".split("e")
        shown = f"{float(mantissa):g}e{int(exponent)}"
    else:
        shown = f"{value:,.10f}".rstrip("0").rstrip(".")
        # Four figures read well without a gap: 2000, but 20 000.
        shown = shown.replace(",", "\u202f" if size >= 1e4 else "")
    return shown.replace("-", "−")


def rounded(value: float) -> str:
    """A measured value to three figures, as text."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size == 0 or size < 1e-4 or size >= 1e7:
        return label(float(f"{value:.2e}"))
    decimals = max(0, 2 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".replace(",", "\u202f").replace("-", "−")
