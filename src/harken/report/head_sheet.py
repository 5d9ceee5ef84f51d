"""All heads of a model as small plots: attention by offset, from weights and measured on inputs.

Bars are measured, lines are read from weights: mean attention at each offset from the query, the
past at the left. Heights are square roots, as in the color scale, so that attention spread over
many tokens is visible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from harken.report.canvas import MARGIN, Bars, Circle, Drawing, Label, Line, Mark, text_width
from harken.report.markup import prose

_GAP, _TITLE, _LINE = 10, 24, 18
_WIDE, _HIGH, _NAME = 88, 52, 13  # pixels of a plot, and of the line above it
_LEGEND = "from weights, with a dot at their offset; past at the left, heights are square roots"


class Share(NamedTuple):
    """Attention at an offset; positive offsets are in the past."""

    offset: int
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadPlot:
    """One head; either side may be unknown."""

    name: str  # the pattern it resembles, or ""
    measured: Sequence[Share] = ()
    weights: Sequence[Share] = ()
    preferred: int | None = None  # the offset with the highest score


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadRow:
    """The heads of one attention module."""

    name: str
    heads: Sequence[HeadPlot]


def head_sheet(rows: Sequence[HeadRow], title: str) -> Drawing:
    """Draw a row for each attention module and a column for each head, with one axis."""
    assert rows and all(row.heads for row in rows), "a sheet has heads"
    left = MARGIN + _GAP + max(text_width(row.name) for row in rows)
    columns = [left + i * (_WIDE + _GAP) for i in range(max(len(row.heads) for row in rows))]
    width = max(columns[-1] + _WIDE, MARGIN + 128 + 0.92 * text_width(_LEGEND)) + MARGIN
    far, near = _range(rows)
    marks = list(_heading(title))
    top = MARGIN + _TITLE + 2 * _LINE
    for head, x in enumerate(columns, start=1):
        marks.append(Label(x + _WIDE / 2, top, f"H{head}", anchor="middle", size=11))
    top += _GAP
    bottom = top + len(rows) * (_NAME + _HIGH + _GAP) + 4
    for number, row in enumerate(rows):
        y = top + number * (_NAME + _HIGH + _GAP) + _NAME
        marks.append(Label(left - _GAP, y + _HIGH / 2 + 4, prose(row.name), "ink", "end"))
        for x, plot in zip(columns, row.heads, strict=False):
            marks += _plot(plot, x, y, far, near)
    for x in columns:
        marks.append(Label(x, bottom, str(far), size=10))
        zero = x + (far + 0.5) * _WIDE / (far - near + 1)
        marks.append(Label(zero, bottom, "0", anchor="middle", size=10))
        if near < 0:
            marks.append(Label(x + _WIDE, bottom, str(-near), anchor="end", size=10))
    return Drawing(width=width, height=bottom + MARGIN, title=title, marks=marks)


def _range(rows: Sequence[HeadRow]) -> tuple[int, int]:
    """Return the offsets at the left and right ends: those with a weight of at least 0.01."""
    offsets = [
        share.offset
        for row in rows
        for plot in row.heads
        for share in (*plot.measured, *plot.weights)
        if share.weight >= 0.01
    ]
    return max([4, *offsets]), min([0, *offsets])


def _heading(title: str) -> Iterator[Mark]:
    y = MARGIN + 14
    yield Label(MARGIN, y, prose(title), "ink", size=15)
    y += _TITLE
    yield Bars([(MARGIN, y - 10, 16, 11)], "bar")
    yield Label(MARGIN + 22, y, "measured")
    x = MARGIN + 100
    yield Line([(x, y - 4), (x + 22, y - 4)], "mark", 1.6)
    yield Circle(x + 11, y - 4, 3, "mark")
    yield Label(x + 28, y, _LEGEND)


def _plot(plot: HeadPlot, x: float, y: float, far: int, near: int) -> Iterator[Mark]:
    step = _WIDE / (far - near + 1)

    def place(offset: int) -> float:
        return x + (far - offset + 0.5) * step

    def level(weight: float) -> float:
        return y + _HIGH * (1 - sqrt(min(max(weight, 0.0), 1.0)))

    if plot.name:
        yield Label(x + _WIDE / 2, y - 3, prose(plot.name), "ink", "middle", 10)
    yield Bars([(place(0) - 0.5, y, 1, _HIGH), (x, y + _HIGH, _WIDE, 1)], "rule")
    bars = [
        (place(offset) - 0.4 * step, level(weight), 0.8 * step, y + _HIGH - level(weight))
        for offset, weight in plot.measured
        if near <= offset <= far and weight > 0
    ]
    if bars:
        yield Bars(bars, "bar")
    points = {
        share.offset: (place(share.offset), level(share.weight))
        for share in sorted(plot.weights)
        if near <= share.offset <= far
    }
    if points:
        yield Line(list(points.values()), "mark", 1.4)
    if plot.preferred in points:
        yield Circle(*points[plot.preferred], 3, "mark")
