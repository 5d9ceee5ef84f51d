"""Charts as inline SVG: lines, points with intervals, vertical marks; and a stacked bar.

Positions are per cent of the plot and lines are in a stretched viewport, so a narrow screen does
not shrink the text. A value that is not finite (or not positive on a logarithmic axis) is a gap.
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
from harken.report.axis import PlotAxis, exact_axis, log_axis, round_axis, rounded, stack_labels
from harken.report.markup import grouped
from harken.report.page import macro

_COLORS = 6  # classes c0..c5 in page.css; further series are dashed
_COLUMNS = 400  # of the plot, each drawn by at most four points
_LETTER = 7.0 / 290.0  # of the width of the plot on a phone
_BAR_COLORS = ("c0", "c1", "c3")  # distinguishable with color blindness
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)

Points = NDArray[np.float64]  # [points, 2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Values over x, drawn as a line; or, with `intervals`, as points of the given radii."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    intervals: Sequence[tuple[float, float] | None] = ()
    radii: Sequence[float] = ()

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r}: {len(self.x)} x but {len(self.y)} y")

    def segments(self, log_y: bool) -> list[Points]:
        """Return the points between gaps, sorted by x: a resumed run may log steps twice."""
        points = np.column_stack([self.x, self.y]).astype(np.float64)
        points = points[np.argsort(points[:, 0], kind="stable")]
        usable = np.isfinite(points[:, 1]) & ((points[:, 1] > 0) | (not log_y))
        parts = np.split(points, np.flatnonzero(np.diff(usable)) + 1)
        # Parts with values and gaps alternate.
        return parts[not usable[0] :: 2] if len(points) else []


class VerticalLine(NamedTuple):
    """A named mark on the x axis."""

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
    marks: Sequence[VerticalLine] = (),
    description: str = "",
) -> Markup:
    """Return a figure; with `percent`, x and y are proportions and the axes show per cent.

    A title adds a caption and a legend with the last value of each series.
    """
    segments = [line.segments(log_y) for line in series]
    if not any(segments):
        return macro("chart.html", "empty", title=title)
    x_values, y_values = np.concatenate(list(chain(*segments))).T
    if percent:
        x = PlotAxis(0.0, 1.0, _QUARTERS)
        y = x if diagonal else round_axis(0.0, max(0.05, float(y_values.max())))
    else:
        x = _step_axis([*x_values, *(mark.x for mark in marks)])
        low, high = float(y_values.min()), float(y_values.max())
        # A linear axis includes zero if it is near, so that heights are proportional to losses.
        y = log_axis(low, high) if log_y else round_axis(0.0 if 0 < low < high / 2 else low, high)
    marks = sorted(marks)
    spans = [(x.share(at), x.share(at), _LETTER * len(name)) for at, name in marks]
    rows = stack_labels(spans, 1, 0.03)
    lines = [
        {
            "style": f"c{i % _COLORS}" + " dashed" * (i >= _COLORS),
            "name": line.name,
            "final": f"final {rounded(parts[-1][-1, 1])}" if parts else "no values",
            "path": "" if line.radii else _path(parts, x, y),
            "points": _points(line, parts),
            "intervals": [
                (at, *interval)
                for at, interval in zip(line.x, line.intervals, strict=False)
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
        y_label=y_label + ", %" * percent + ", logarithmic" * log_y,
        description=description or f"{title}. " + " ".join(map(_describe, series, segments)),
        lines=lines,
        x=x,
        y=y,
        factor=100 if percent else 1,
        diagonal=diagonal,
        mark_lines=1 + max(row for row, _ in rows) if rows else int(percent),
        marks=list(zip(marks, rows, strict=True)),
    )


def _step_axis(values: Sequence[float]) -> PlotAxis:
    """Return an axis that ends at the first and last step and has integer ticks."""
    axis = exact_axis(float(min(values)), float(max(values)), about=7)
    return axis._replace(ticks=[tick for tick in axis.ticks if tick == int(tick)] or [axis.start])


def thin(points: Points, *, columns: int = _COLUMNS) -> Points:
    """Keep the first, lowest, highest and last point of each column, which look the same."""
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
    """Return the lines of a series in a viewport of 1000 x 1000 units."""
    lines = [
        [f"{1000 * x.share(a):.1f} {1000 - 1000 * y.share(b):.1f}" for a, b in thin(part)]
        for part in parts
    ]
    return "".join("M" + "L".join(line) for line in lines if len(line) > 1)


def _points(series: Series, parts: Sequence[Points]) -> list[tuple[float, float, float]]:
    """Return x, y and radius of points: all if the series has radii, else isolated ones."""
    if series.radii:
        triples = zip(series.x, series.y, series.radii, strict=True)
        return [(x, y, radius) for x, y, radius in triples if math.isfinite(y)]
    return [(float(part[0, 0]), float(part[0, 1]), 3.5) for part in parts if len(part) == 1]


def _describe(series: Series, parts: Sequence[Points]) -> str:
    if not parts:
        return f"{series.name}: no values."
    points = np.concatenate(parts)
    first, last, lowest = (
        f"{rounded(y)} at {grouped(int(x))}" for x, y in points[[0, -1, int(points[:, 1].argmin())]]
    )
    return f"{series.name}: {first}, {last}, lowest {lowest}."


def stacked_bar(parts: Mapping[str, Estimate]) -> Markup:
    """Return the parts of a whole as one bar, with a legend."""
    shares = [100 * (part.value or 0.0) for part in parts.values()]
    intervals = map(format_interval, parts.values())
    starts = np.cumsum([0.0, *shares]).tolist()
    rows = list(zip(_BAR_COLORS, parts, starts, shares, intervals, strict=False))
    return macro("chart.html", "stacked_bar", parts=rows)
