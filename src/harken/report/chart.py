"""Charts as inline SVG: axes, lines, points, intervals, vertical marks; and one stacked bar.

Positions are per cent of the plot and lines are in a nested viewport that is stretched, so a narrow
screen narrows the chart without shrinking its text. A value that is not finite (or not positive on
a logarithmic axis) is a gap.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from harken.measure.interval import Estimate, shown_interval
from harken.report.axis import label, log_axis, rounded, ticks
from harken.report.markup import grouped
from harken.report.page import macro

_COLORS = 6  # classes c0..c5 in page.css; further series are dashed
_COLUMNS = 400  # of the plot, each drawn by at most four points
# Names of marks are distributed over lines as if the plot were a phone's.
_LETTER, _PHONE = 7.0, 290.0  # pixels
_PARTS = ("c0", "c1", "c3")  # distinguishable with color blindness
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


class Mark(NamedTuple):
    """A named vertical line."""

    x: float
    name: str


class Scale(NamedTuple):
    """The range of an axis and its ticks."""

    low: float
    high: float
    ticks: Sequence[float]
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value in per cent of the axis."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return 100 * (value - low) / (high - low) if high > low else 50.0


def chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    log_y: bool = False,
    percent: bool = False,
    diagonal: bool = False,
    marks: Sequence[Mark] = (),
    description: str = "",
) -> Markup:
    """Return a figure; with `percent`, x and y are proportions and the axes show per cent.

    A title adds a caption and a legend with the last value of each series.
    """
    segments = [_segments(line, log_y) for line in series]
    points = [segment for parts in segments for segment in parts]
    if not points:
        return macro("chart.html", "empty", title)
    values = np.concatenate(points)
    if percent:
        top = 1.0 if diagonal else max(0.05, float(values[:, 1].max()))
        steps = _QUARTERS if diagonal else ticks(0.0, top)
        x, y = Scale(0.0, 1.0, _QUARTERS), Scale(0.0, steps[-1], steps)
    else:
        x = _steps([*values[:, 0], *(mark.x for mark in marks)])
        y = _scale(float(values[:, 1].min()), float(values[:, 1].max()), log_y)
    factor = 100 if percent else 1
    spoken = f"{title}. " + " ".join(map(_spoken, series, segments))
    placed, lines = _place_marks(marks, x)
    return macro(
        "chart.html",
        "chart",
        {
            "title": title,
            "x_label": x_label + ", %" * percent,
            "y_label": y_label + ", %" * percent + ", logarithmic" * log_y,
            "description": description or spoken,
            "legend": [
                (_style(i), line.name, _ending(parts))
                for i, (line, parts) in enumerate(zip(series, segments, strict=True))
            ],
            "mark_lines": lines if placed else int(percent),
            "marks": placed,
            "rows": [(label(factor * tick), f"{100 - y.place(tick):.2f}") for tick in y.ticks],
            "columns": [(label(factor * tick), f"{x.place(tick):.2f}") for tick in x.ticks],
            "diagonal": diagonal,
            "paths": [
                (_style(i), path)
                for i, parts in enumerate(segments)
                if not series[i].radii and (path := _path(parts, x, y))
            ],
            "intervals": [
                (f"{x.place(at):.2f}", f"{100 - y.place(high):.2f}", f"{100 - y.place(low):.2f}")
                for line in series
                for at, interval in zip(line.x, line.intervals, strict=False)
                if interval is not None
                for low, high in [interval]
            ],
            "points": [
                (_style(i), f"{x.place(at):.2f}", f"{100 - y.place(value):.2f}", f"{radius:.1f}")
                for i, parts in enumerate(segments)
                for at, value, radius in _dots(series[i], parts)
            ],
        },
    )


def _segments(series: Series, log_y: bool) -> list[Points]:
    points = np.column_stack(
        [np.asarray(series.x, dtype=np.float64), np.asarray(series.y, dtype=np.float64)]
    )
    # A resumed run may log some steps twice, or late.
    points = points[np.argsort(points[:, 0], kind="stable")]
    usable = np.isfinite(points[:, 1]) & ((points[:, 1] > 0) | (not log_y))
    breaks = np.flatnonzero(np.diff(usable.astype(np.int8))) + 1
    parts = np.split(np.arange(len(points)), breaks)
    return [points[part] for part in parts if part.size and usable[part[0]]]


def _steps(values: Sequence[float]) -> Scale:
    """Return the x axis of steps: it ends at the first and last one and has whole ticks."""
    low, high = float(min(values)), float(max(values))
    inside = [
        tick for tick in ticks(low, high, about=7) if low <= tick <= high and tick == int(tick)
    ]
    return Scale(low, high, inside or [low])


def _scale(low: float, high: float, log: bool) -> Scale:
    if log:
        return Scale(*log_axis(low, high), log=True)
    # Includes zero if it is near, so that half a loss looks like half.
    steps = ticks(0.0 if 0 < low < high / 2 else low, high)
    return Scale(steps[0], steps[-1], steps)


def thin(points: Points, *, columns: int = _COLUMNS) -> Points:
    """Keep at most four points per column (first, lowest, highest, last): the drawn envelope."""
    if len(points) <= 4 * columns:
        return points
    edges = np.linspace(points[0, 0], points[-1, 0], columns + 1)[1:-1]
    kept: set[int] = set()
    for part in np.split(np.arange(len(points)), np.searchsorted(points[:, 0], edges)):
        if part.size:
            values = points[part, 1]
            ends = (0, values.argmin(), values.argmax(), -1)
            kept.update(int(part[end]) for end in ends)
    return points[sorted(kept)]


def _path(parts: Sequence[Points], x: Scale, y: Scale) -> str:
    """Return the lines of a series in a viewport of 1000 x 1000 units."""
    return "".join(
        "M" + "L".join(f"{10 * x.place(a):.1f} {1000 - 10 * y.place(b):.1f}" for a, b in thin(part))
        for part in parts
        if len(part) > 1
    )


def _dots(series: Series, parts: Sequence[Points]) -> list[tuple[float, float, float]]:
    """Return x, y and radius of points; of a line, those between two gaps."""
    if series.radii:
        return [
            (at, value, radius)
            for at, value, radius in zip(series.x, series.y, series.radii, strict=True)
            if math.isfinite(value)
        ]
    return [(float(part[0, 0]), float(part[0, 1]), 3.5) for part in parts if len(part) == 1]


def _style(index: int) -> str:
    return f"c{index % _COLORS}" + " dashed" * (index >= _COLORS)


def _place_marks(marks: Sequence[Mark], x: Scale) -> tuple[list[dict[str, object]], int]:
    """Return the marks, and how many lines of text their names need above the plot."""
    ends: list[float] = []  # of the text in each line, in per cent
    placed: list[dict[str, object]] = []
    for mark in sorted(marks):
        at = x.place(mark.x)
        width = 100 * _LETTER * len(mark.name) / _PHONE
        flipped = at + width > 100
        start = at - width if flipped else at
        row = next((i for i, end in enumerate(ends) if end <= start), len(ends))
        ends[row : row + 1] = [start + width + 3]
        placed.append({"x": f"{at:.2f}", "y": -8 - 15 * row, "flipped": flipped, "name": mark.name})
    return placed, len(ends)


def _ending(parts: Sequence[Points]) -> str:
    return f"final {rounded(parts[-1][-1, 1])}" if parts else "no values"


def _spoken(series: Series, parts: Sequence[Points]) -> str:
    if not parts:
        return f"{series.name}: no values."
    points = np.concatenate(parts)
    low = points[points[:, 1].argmin()]
    first, last, lowest = (
        f"{rounded(point[1])} at {grouped(int(point[0]))}" for point in (points[0], points[-1], low)
    )
    return f"{series.name}: {first}, {last}, lowest {lowest}."


def stacked_bar(parts: Mapping[str, Estimate]) -> Markup:
    """Return the parts of a whole side by side, with a legend that names empty parts too."""
    starts = np.cumsum([0.0, *(100 * (part.value or 0.0) for part in parts.values())])
    return macro(
        "chart.html",
        "stacked_bar",
        [
            {
                "color": color,
                "start": f"{start:.2f}",
                "width": f"{100 * (part.value or 0.0):.2f}",
                "name": name,
                "share": f"{100 * (part.value or 0.0):.1f}\u202f%, {shown_interval(part)}",
            }
            for (name, part), color, start in zip(parts.items(), _PARTS, starts, strict=False)
        ],
    )
