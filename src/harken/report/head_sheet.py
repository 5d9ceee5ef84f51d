"""All heads of a model as small plots: attention by offset, from weights and measured on inputs.

Bars are measured, lines are read from weights: mean attention at each offset from the query, the
past at the left. Heights are square roots, as in the color scale, so that attention spread over
many tokens is visible.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import NamedTuple

from harken.report.canvas import MARGIN, Bars, Circle, Drawing, Label, Line, Mark, text_width
from harken.report.markup import prose

_GAP, _TITLE, _LINE = 10, 24, 18
_WIDE, _HIGH, _NAME = 88, 52, 13  # pixels of a plot, and of the line above it
_PITCH = _NAME + _HIGH + _GAP  # from one row to the next
_LEGEND = "from weights, with a dot at their offset; past at the left, heights are square roots"


class OffsetWeight(NamedTuple):
    """Attention at an offset; positive offsets are in the past."""

    offset: int
    weight: float


class HeadPlot(NamedTuple):
    """One head; either side may be unknown."""

    name: str  # the pattern it resembles, or ""
    measured: Sequence[OffsetWeight] = ()
    weights: Sequence[OffsetWeight] = ()
    preferred: int | None = None  # the offset with the highest score


class HeadRow(NamedTuple):
    """The heads of one attention module."""

    name: str
    heads: Sequence[HeadPlot]


def head_sheet(rows: Sequence[HeadRow], title: str) -> Drawing:
    """Draw a row for each attention module and a column for each head, with one axis."""
    assert rows and all(row.heads for row in rows), "a sheet has heads"
    left = MARGIN + _GAP + max(text_width(row.name) for row in rows)
    columns = [left + i * (_WIDE + _GAP) for i in range(max(len(row.heads) for row in rows))]
    width = max(columns[-1] + _WIDE, MARGIN + 128 + 0.92 * text_width(_LEGEND)) + MARGIN
    # The offsets at the left and right ends have a weight of at least 0.01.
    offsets = [
        offset
        for row in rows
        for plot in row.heads
        for offset, weight in (*plot.measured, *plot.weights)
        if weight >= 0.01
    ]
    far, near = max([4, *offsets]), min([0, *offsets])
    y = MARGIN + 14 + _TITLE
    marks: list[Mark] = [
        Label(MARGIN, MARGIN + 14, prose(title), "ink", size=15),
        Bars([(MARGIN, y - 10, 16, 11)], "bar"),
        Label(MARGIN + 22, y, "measured"),
        Line([(MARGIN + 100, y - 4), (MARGIN + 122, y - 4)], "mark", 1.6),
        Circle(MARGIN + 111, y - 4, 3, "mark"),
        Label(MARGIN + 128, y, _LEGEND),
    ]
    top = MARGIN + _TITLE + 2 * _LINE
    for head, x in enumerate(columns, start=1):
        marks.append(Label(x + _WIDE / 2, top, f"H{head}", anchor="middle", size=11))
    for number, row in enumerate(rows):
        y = top + _GAP + _NAME + number * _PITCH
        marks.append(Label(left - _GAP, y + _HIGH / 2 + 4, prose(row.name), "ink", "end"))
        for x, plot in zip(columns, row.heads, strict=False):
            marks += _plot(plot, x, y, far, near)
    bottom = top + _GAP + len(rows) * _PITCH + 4
    for x in columns:
        zero = x + (far + 0.5) * _WIDE / (far - near + 1)
        marks.append(Label(x, bottom, str(far), size=10))
        marks.append(Label(zero, bottom, "0", anchor="middle", size=10))
        if near < 0:
            marks.append(Label(x + _WIDE, bottom, str(-near), anchor="end", size=10))
    return Drawing(width=width, height=bottom + MARGIN, title=title, marks=marks)


def _plot(plot: HeadPlot, x: float, y: float, far: int, near: int) -> Iterator[Mark]:
    step, bottom = _WIDE / (far - near + 1), y + _HIGH

    def place(offset: int, weight: float = 1.0) -> tuple[float, float]:
        height = _HIGH * sqrt(min(max(weight, 0.0), 1.0))
        return x + (far - offset + 0.5) * step, bottom - height

    if plot.name:
        yield Label(x + _WIDE / 2, y - 3, prose(plot.name), "ink", "middle", 10)
    yield Bars([(place(0)[0] - 0.5, y, 1, _HIGH), (x, bottom, _WIDE, 1)], "rule")
    measured = (share for share in plot.measured if near <= share.offset <= far)
    tops = [place(*share) for share in measured if share.weight > 0]
    if tops:
        yield Bars([(at - 0.4 * step, top, 0.8 * step, bottom - top) for at, top in tops], "bar")
    points = {
        share.offset: place(*share) for share in sorted(plot.weights) if near <= share.offset <= far
    }
    if points:
        yield Line(list(points.values()), "mark", 1.4)
    if plot.preferred in points:
        yield Circle(*points[plot.preferred], 3, "mark")
