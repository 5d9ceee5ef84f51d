"""Charts as inline SVG: lines, points with intervals, vertical lines; and a stacked bar.

Positions are percentages of the plot and lines are in a stretched viewBox, so that text keeps its
size on a narrow screen. A value that is not finite (or not positive on a log scale) is a gap.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from harken.measure.interval import Estimate, format_interval
from harken.report.axis import (
    PlotAxis,
    exact_axis,
    format_measured,
    log_axis,
    round_axis,
    stack_labels,
)
from harken.report.markup import group_digits
from harken.report.page import macro

_COLORS = 6  # classes c0..c5 in page.css; further series are dashed
_COLUMNS = 400  # of the plot, each drawn with at most four points
_LETTER = 7.0 / 290.0  # width of a letter relative to that of the plot on a phone
_BAR_COLORS = ("c0", "c1", "c3")  # classes; distinguishable by color-blind readers
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)

Points = NDArray[np.float64]  # [points, 2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Values over x, drawn as a line, or as points if `radii` are given."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    intervals: Sequence[tuple[float, float] | None] = ()  # low and high end for each y
    radii: Sequence[float] = ()  # of the markers, in pixels

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r}: {len(self.x)} x but {len(self.y)} y")

    def segments(self, log_y: bool) -> list[Points]:
        """Return the points between gaps, sorted by x."""
        points = np.column_stack([self.x, self.y]).astype(np.float64)
        points = points[np.argsort(points[:, 0], kind="stable")]
        usable = np.isfinite(points[:, 1]) & ((points[:, 1] > 0) | (not log_y))
        parts = np.split(points, np.flatnonzero(np.diff(usable)) + 1)
        if not len(points):
            return []
        first = 0 if usable[0] else 1  # segments and gaps alternate
        return parts[first::2]


class VerticalLine(NamedTuple):
    """A vertical line with a name."""

    x: float
    name: str


def chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    log_y: bool = False,
    percent: bool = False,
    diagonal: bool = False,
    vertical_lines: Sequence[VerticalLine] = (),
    description: str = "",
) -> Markup:
    """Return a chart; with `percent`, x and y are proportions and the axes show percentages.

    A title adds a caption and a legend with the last value of each series; `diagonal` adds the line
    from (0, 0) to (1, 1).
    """
    segments = [line.segments(log_y) for line in series]
    if not any(segments):
        return macro("chart.html", "empty", title=title)
    x_values, y_values = np.concatenate(list(chain(*segments))).T
    if percent:
        x_axis = y_axis = PlotAxis(0.0, 1.0, _QUARTERS)
        if not diagonal:
            y_axis = round_axis(0.0, max(0.05, float(y_values.max())))
    else:
        x_axis = _step_axis([*x_values, *(line.x for line in vertical_lines)])
        low, high = float(y_values.min()), float(y_values.max())
        # A linear axis includes zero if it is near, so that heights are proportional to values.
        start = 0.0 if 0 < low < high / 2 else low
        y_axis = log_axis(low, high) if log_y else round_axis(start, high)
    named_lines = sorted(vertical_lines)
    positions = [x_axis.fraction(line.x) for line in named_lines]
    spans = [
        (position, position, _LETTER * len(line.name))
        for position, line in zip(positions, named_lines, strict=True)
    ]
    rows = stack_labels(spans, limit=1, gap=0.03)
    # With `percent`, one row is kept for names of lines, so that charts side by side align.
    name_rows = max((1 + row for row, _ in rows), default=1 if percent else 0)
    lines = [
        {
            "style": f"c{i % _COLORS}" + " dashed" * (i >= _COLORS),
            "name": line.name,
            "final": f"last value {format_measured(parts[-1][-1, 1])}" if parts else "no values",
            "path": "" if line.radii else _path(parts, x_axis, y_axis),
            "points": _points(line, parts),
            "intervals": [
                (x, *interval)
                for x, interval in zip(line.x, line.intervals, strict=False)
                if interval is not None
            ],
        }
        for i, (line, parts) in enumerate(zip(series, segments, strict=True))
    ]
    return macro(
        "chart.html",
        "chart",
        title=title,
        x_label=x_label + ", %" * percent,
        y_label=y_label + ", %" * percent + ", log scale" * log_y,
        description=description or f"{title}. " + " ".join(map(_describe, series, segments)),
        lines=lines,
        x=x_axis,
        y=y_axis,
        factor=100 if percent else 1,
        diagonal=diagonal,
        name_rows=name_rows,
        vertical_lines=list(zip(named_lines, rows, strict=True)),
    )


def _step_axis(values: Sequence[float]) -> PlotAxis:
    """Return an axis that ends at the first and last step and has integer ticks."""
    axis = exact_axis(float(min(values)), float(max(values)), step_count=7)
    return axis._replace(ticks=[tick for tick in axis.ticks if tick == int(tick)] or [axis.start])


def thin_points(points: Points, *, columns: int = _COLUMNS) -> Points:
    """Keep the first, lowest, highest and last point of each column; the line looks the same."""
    if len(points) <= 4 * columns:
        return points
    edges = np.linspace(points[0, 0], points[-1, 0], columns + 1)[1:-1]
    thinned = []
    for part in np.split(points, np.searchsorted(points[:, 0], edges)):
        if len(part):
            indices = {0, int(part[:, 1].argmin()), int(part[:, 1].argmax()), len(part) - 1}
            thinned.append(part[sorted(indices)])
    return np.concatenate(thinned)


def _path(parts: Sequence[Points], x: PlotAxis, y: PlotAxis) -> str:
    """Return the lines of a series in a viewBox of 1000 x 1000 units."""
    lines = [
        [
            f"{1000 * x.fraction(a):.1f} {1000 - 1000 * y.fraction(b):.1f}"
            for a, b in thin_points(part)
        ]
        for part in parts
    ]
    return "".join("M" + "L".join(line) for line in lines if len(line) > 1)


def _points(series: Series, parts: Sequence[Points]) -> list[tuple[float, float, float]]:
    """Return x, y and radius: of all points if the series has radii, else of isolated points."""
    if series.radii:
        triples = zip(series.x, series.y, series.radii, strict=True)
        return [(x, y, radius) for x, y, radius in triples if math.isfinite(y)]
    return [(float(part[0, 0]), float(part[0, 1]), 3.5) for part in parts if len(part) == 1]


def _describe(series: Series, parts: Sequence[Points]) -> str:
    if not parts:
        return f"{series.name}: no values."
    points = np.concatenate(parts)
    chosen = points[[0, -1, int(points[:, 1].argmin())]]
    first, last, lowest = (f"{format_measured(y)} at {group_digits(int(x))}" for x, y in chosen)
    return f"{series.name}: from {first} to {last}, lowest {lowest}."


def stacked_bar(parts: Mapping[str, Estimate]) -> Markup:
    """Return at most three parts of a whole as one bar, with a legend."""
    shares = [100 * (part.value or 0.0) for part in parts.values()]
    intervals = map(format_interval, parts.values())
    starts = np.cumsum([0.0, *shares]).tolist()
    rows = list(zip(_BAR_COLORS, parts, starts, shares, intervals, strict=False))
    return macro("chart.html", "stacked_bar", parts=rows)
