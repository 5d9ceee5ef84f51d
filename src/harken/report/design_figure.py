"""Figure of a designed head: attention of all queries, and of the last one with target keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harken.report.axis import exact_axis, format_tick
from harken.report.canvas import Bars, Circle, Drawing, Heatmap, Label, Mark, Polyline
from harken.report.markup import visible_text

if TYPE_CHECKING:
    from harken.design.designs import Design

_CONTEXT = 24  # keys shown on both sides of the target keys
# In pixels: the size of both plots, the left edge of each, and the upper and lower edge.
_SIZE, _MAP, _BARS, _TOP = 256.0, 52.0, 392.0, 56.0
_BOTTOM = _TOP + _SIZE
_HEADROOM = 1.18  # the bars end below the legend


def draw_design(design: "Design", path: Path, *, title: str) -> None:
    """Write SVG or PNG, depending on the suffix of `path`."""
    weights, targets = design.attention().numpy(), design.targets.numpy()  # [queries, keys]
    query = int(np.flatnonzero(targets.any(axis=1))[-1])  # the last query with target keys
    keys: list[int] = np.flatnonzero(targets[query]).tolist()
    first, last = max(0, keys[0] - _CONTEXT), min(len(targets) - 1, keys[-1] + _CONTEXT)
    row, highest = weights[query], _HEADROOM * float(weights[query].max())
    # The axis of keys extends from first - 1 to last + 1.
    points = {
        key: (
            _BARS + _SIZE * (key - first + 1) / (last - first + 2),
            _TOP + _SIZE * (1 - row[key] / highest),
        )
        for key in range(first, last + 1)
    }
    bars = [(x - 1.25, y, 2.5, _BOTTOM - y) for x, y in points.values()]
    marks: list[Mark] = [
        Label(20, 26, visible_text(title), "text", size=15),
        Heatmap(_MAP, _TOP, _SIZE, _SIZE, weights),
        *_axes(_MAP, "attention", "query", (0, weights.shape[1]), (weights.shape[0], 0)),
        *_axes(_BARS, f"query {query}", "attention", (first - 1, last + 1), (0.0, highest)),
        Bars(bars, "accent"),
        *(Circle(*point, 2, "accent") for point in points.values()),
        *(Circle(*points[key], 3, "highlight") for key in keys),
        Circle(_BARS + 14, _TOP + 8, 3, "highlight"),
        Label(_BARS + 24, _TOP + 12, f"target keys: {row[keys].sum():.4f} in total", "text"),
    ]
    Drawing(width=680, height=_BOTTOM + 52, title=title, marks=marks).write(path)


def _axes(
    x: float, title: str, y_label: str, x_range: tuple[float, float], y_range: tuple[float, float]
) -> Iterator[Mark]:
    """Draw the axes and the title of a plot; both ranges start at the lower left corner."""
    yield Polyline([(x, _TOP), (x, _BOTTOM), (x + _SIZE, _BOTTOM)])
    yield Label(x + _SIZE / 2, _TOP - 8, title, "text", "middle")
    yield Label(x + _SIZE / 2, _BOTTOM + 36, "key", anchor="middle")
    yield Label(x - 38, _TOP + _SIZE / 2, y_label, anchor="middle", rotated=True)
    horizontal, vertical = exact_axis(*x_range), exact_axis(*y_range)
    for tick in horizontal.ticks:
        if tick == int(tick):
            at = x + _SIZE * horizontal.fraction(tick)
            yield Polyline([(at, _BOTTOM), (at, _BOTTOM + 4)])
            yield Label(at, _BOTTOM + 18, format_tick(tick), anchor="middle", size=11)
    for tick in vertical.ticks:
        at = _BOTTOM - _SIZE * vertical.fraction(tick)
        yield Polyline([(x - 4, at), (x, at)])
        yield Label(x - 7, at + 4, format_tick(tick), anchor="end", size=11)
