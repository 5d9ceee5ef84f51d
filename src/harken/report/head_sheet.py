"""All heads of a model as small plots of attention by offset from the query, past at the left.

Bars are measured on inputs, lines are computed from weights. Heights are square roots, as in the
color scale, so that attention spread over many tokens is visible.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import sqrt

from harken.inspection.heads import HeadSummary
from harken.inspection.refs import layer_label
from harken.report.canvas import MARGIN, Bars, Circle, Drawing, Label, Mark, Polyline, text_width
from harken.report.markup import prose

_GAP, _TITLE, _LINE = 10, 24, 18
_WIDE, _HIGH, _NAME = 88, 52, 13  # pixels of a plot, and of the line above it
_PITCH = _NAME + _HIGH + _GAP  # from one row to the next
_LEGEND = "from weights, with a dot at their offset; past at the left, heights are square roots"


def head_sheet(heads: Sequence[HeadSummary], title: str) -> Drawing:
    """Draw a row for each attention module and a column for each head, with one axis."""
    rows = [
        (layer_label(module), list(group))
        for module, group in groupby(heads, key=lambda head: head.module)
    ]
    left = MARGIN + _GAP + max(text_width(name) for name, _ in rows)
    columns = [left + i * (_WIDE + _GAP) for i in range(max(len(group) for _, group in rows))]
    width = max(columns[-1] + _WIDE, MARGIN + 128 + 0.92 * text_width(_LEGEND)) + MARGIN
    # The offsets at the left and right ends have a weight of at least 0.01.
    offsets = [
        offset
        for head in heads
        for offset, weight in (*head.measured_offsets, *head.expected_offsets)
        if weight >= 0.01
    ]
    far, near = max([4, *offsets]), min([0, *offsets])
    y = MARGIN + 14 + _TITLE
    marks: list[Mark] = [
        Label(MARGIN, MARGIN + 14, prose(title), "ink", size=15),
        Bars([(MARGIN, y - 10, 16, 11)], "bar"),
        Label(MARGIN + 22, y, "measured"),
        Polyline([(MARGIN + 100, y - 4), (MARGIN + 122, y - 4)], "mark", 1.6),
        Circle(MARGIN + 111, y - 4, 3, "mark"),
        Label(MARGIN + 128, y, _LEGEND),
    ]
    top = MARGIN + _TITLE + 2 * _LINE
    for number, x in enumerate(columns, start=1):
        marks.append(Label(x + _WIDE / 2, top, f"H{number}", anchor="middle", size=11))
    for row, (name, group) in enumerate(rows):
        y = top + _GAP + _NAME + row * _PITCH
        marks.append(Label(left - _GAP, y + _HIGH / 2 + 4, prose(name), "ink", "end"))
        for x, head in zip(columns, group, strict=False):
            marks += _plot(head, x, y, far, near)
    bottom = top + _GAP + len(rows) * _PITCH + 4
    for x in columns:
        zero = x + (far + 0.5) * _WIDE / (far - near + 1)
        marks.append(Label(x, bottom, str(far), size=10))
        marks.append(Label(zero, bottom, "0", anchor="middle", size=10))
        if near < 0:
            marks.append(Label(x + _WIDE, bottom, str(-near), anchor="end", size=10))
    return Drawing(width=width, height=bottom + MARGIN, title=title, marks=marks)


def _plot(head: HeadSummary, x: float, y: float, far: int, near: int) -> Iterator[Mark]:
    step, bottom = _WIDE / (far - near + 1), y + _HIGH

    def place(offset: int, weight: float = 1.0) -> tuple[float, float]:
        height = _HIGH * sqrt(min(max(weight, 0.0), 1.0))
        return x + (far - offset + 0.5) * step, bottom - height

    def points(offsets: Sequence[tuple[int, float]]) -> dict[int, tuple[float, float]]:
        return {offset: place(offset, w) for offset, w in offsets if near <= offset <= far}

    if head.pattern:
        yield Label(x + _WIDE / 2, y - 3, prose(head.pattern), "ink", "middle", 10)
    yield Bars([(place(0)[0] - 0.5, y, 1, _HIGH), (x, bottom, _WIDE, 1)], "rule")
    tops = points([pair for pair in head.measured_offsets if pair[1] > 0]).values()
    if tops:
        yield Bars([(at - 0.4 * step, top, 0.8 * step, bottom - top) for at, top in tops], "bar")
    line = points(sorted(head.expected_offsets))
    if line:
        yield Polyline(list(line.values()), "mark", 1.4)
    if head.prefers and head.weights_offset in line:
        yield Circle(*line[head.weights_offset], 3, "mark")
