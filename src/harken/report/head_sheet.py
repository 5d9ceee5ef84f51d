"""All heads of a model as small plots of mean attention by offset from the query.

Bars are measured on inputs, lines are computed from weights. Heights are square roots, as in the
color scale, so that attention spread over many tokens is visible.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import sqrt

from harken.inspection.heads import HeadSummary
from harken.inspection.refs import layer_label
from harken.report import canvas
from harken.report.canvas import MARGIN, Bars, Circle, Drawing, Label, Mark, Polyline, text_width
from harken.report.markup import prose

_GAP, _WIDE, _HIGH, _NAME = 10, 88, 52, 16  # pixels: between plots, a plot, the line above it
_NOTES = (
    "Mean attention by offset: steps back from query to key, negative for later keys.",
    "Heights are square roots of weights.",
)


def head_sheet(heads: Sequence[HeadSummary], title: str) -> Drawing:
    """Draw a row for each attention module and a column for each head."""
    rows = [
        (layer_label(module), list(group))
        for module, group in groupby(heads, key=lambda head: head.module)
    ]
    left = MARGIN + _GAP + max(text_width(name) for name, _ in rows)
    columns = [left + i * (_WIDE + _GAP) for i in range(max(len(group) for _, group in rows))]
    width = max(columns[-1] + _WIDE, MARGIN + 6.6 * len(_NOTES[0])) + MARGIN
    # The offsets at the left and right ends have a weight of at least 0.01.
    offsets = [
        offset
        for head in heads
        for offset, weight in (*head.measured_offsets, *head.expected_offsets)
        if weight >= 0.01
    ]
    far, near = max([4, *offsets]), min([0, *offsets])
    marks: list[Mark] = [*(labels := canvas.heading(title, _NOTES, MARGIN, width))]
    y = labels[-1].y + canvas.LINE
    marks += [
        Bars([(MARGIN, y - 10, 16, 11)], "bar"),
        Label(MARGIN + 22, y, "measured"),
        Polyline([(MARGIN + 100, y - 4), (MARGIN + 122, y - 4)], "highlight", 1.6),
        Circle(MARGIN + 111, y - 4, 3, "highlight"),
        Label(MARGIN + 128, y, "computed from weights; the dot is the preferred offset"),
    ]
    y += canvas.LINE + _GAP
    for number, x in enumerate(columns, start=1):
        marks.append(Label(x + _WIDE / 2, y, f"H{number}", anchor="middle", size=11))
    for name, group in rows:
        y += _GAP + _NAME
        marks.append(Label(left - _GAP, y + _HIGH / 2 + 4, prose(name), "text", "end"))
        for x, head in zip(columns, group, strict=False):
            marks += _plot(head, x, y, far, near)
        y += _HIGH
    y += _GAP + 4
    for x in columns:
        zero = x + (far + 0.5) * _WIDE / (far - near + 1)
        marks += [Label(x, y, str(far), size=10), Label(zero, y, "0", "muted", "middle", 10)]
        if near < 0:
            marks.append(Label(x + _WIDE, y, f"−{-near}", "muted", "end", 10))
    return Drawing(width=width, height=y + MARGIN, title=title, marks=marks)


def _plot(head: HeadSummary, x: float, y: float, far: int, near: int) -> Iterator[Mark]:
    """Draw one head with offsets from `far` at the left to `near` at the right."""
    step, bottom = _WIDE / (far - near + 1), y + _HIGH

    def points(offsets: Sequence[tuple[int, float]]) -> dict[int, tuple[float, float]]:
        return {
            offset: (x + (far - offset + 0.5) * step, bottom - _HIGH * sqrt(min(max(w, 0), 1)))
            for offset, w in offsets
            if near <= offset <= far
        }

    if not (head.measured_offsets or head.expected_offsets):  # such as cross-attention
        yield Label(x + _WIDE / 2, y + _HIGH / 2 + 4, "no offsets", anchor="middle", size=10)
        return
    if head.pattern:
        yield Label(x + _WIDE / 2, y - 6, prose(head.pattern), "text", "middle", 10)
    yield Bars([(points([(0, 1)])[0][0] - 0.5, y, 1, _HIGH), (x, bottom, _WIDE, 1)], "rule")
    tops = points([pair for pair in head.measured_offsets if pair[1] > 0]).values()
    if tops:
        yield Bars([(at - 0.4 * step, top, 0.8 * step, bottom - top) for at, top in tops], "bar")
    line = points(sorted(head.expected_offsets))
    if line:
        yield Polyline(list(line.values()), "highlight", 1.4)
    if head.prefers and head.weights_offset in line:
        yield Circle(*line[head.weights_offset], 3, "highlight")
