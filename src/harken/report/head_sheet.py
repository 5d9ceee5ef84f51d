"""Small plots of all heads of a model: mean attention by offset from query to key.

Bars are measured on inputs, lines are computed from parameters. Heights are square roots, as in the
color scale, so that attention over many tokens is visible.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import sqrt

from harken.inspection.heads import HeadSummary
from harken.inspection.refs import layer_label
from harken.report import canvas
from harken.report.canvas import MARGIN, Bars, Circle, Drawing, Label, Mark, Polyline, text_width
from harken.report.markup import visible_text

_GAP, _WIDTH, _HEIGHT, _LABEL = 10, 88, 52, 16  # pixels: between plots, of a plot, above a plot
_NOTE_LETTER = 6.6  # pixels per letter, such that the first note fits into a line
_NOTES = (
    "Mean attention by offset: tokens back from query to key, negative for later keys.",
    "Heights are square roots of attention weights.",
)


def head_sheet(heads: Sequence[HeadSummary], title: str) -> Drawing:
    """Draw a row for each attention module and a column for each head."""
    rows = [
        (layer_label(module), list(group))
        for module, group in groupby(heads, key=lambda head: head.module)
    ]
    left = MARGIN + _GAP + max(text_width(name) for name, _ in rows)
    columns = [left + i * (_WIDTH + _GAP) for i in range(max(len(group) for _, group in rows))]
    width = max(columns[-1] + _WIDTH, MARGIN + _NOTE_LETTER * len(_NOTES[0])) + MARGIN
    # The range of the axis: offsets with a weight of at least 0.01.
    offsets = [
        offset
        for head in heads
        for offset, weight in (*head.measured_offsets, *head.expected_offsets)
        if weight >= 0.01
    ]
    max_offset, min_offset = max([4, *offsets]), min([0, *offsets])
    heading = canvas.heading(title, _NOTES, MARGIN, width)
    marks: list[Mark] = [*heading]
    y = heading[-1].y + canvas.LINE
    marks += [
        Bars([(MARGIN, y - 10, 16, 11)], "bar"),
        Label(MARGIN + 22, y, "measured"),
        Polyline([(MARGIN + 100, y - 4), (MARGIN + 122, y - 4)], "highlight", 1.6),
        Circle(MARGIN + 111, y - 4, 3, "highlight"),
        Label(MARGIN + 128, y, "computed from parameters; the dot is the preferred offset"),
    ]
    y += canvas.LINE + _GAP
    for number, x in enumerate(columns, start=1):
        marks.append(Label(x + _WIDTH / 2, y, f"H{number}", anchor="middle", size=11))
    for name, group in rows:
        y += _GAP + _LABEL
        marks.append(Label(left - _GAP, y + _HEIGHT / 2 + 4, visible_text(name), "text", "end"))
        for x, head in zip(columns, group, strict=False):
            marks += _plot(head, x, y, max_offset, min_offset)
        y += _HEIGHT
    y += _GAP + 4
    for x in columns:
        zero = x + (max_offset + 0.5) * _WIDTH / (max_offset - min_offset + 1)
        marks += [Label(x, y, str(max_offset), size=10), Label(zero, y, "0", "muted", "middle", 10)]
        if min_offset < 0:
            marks.append(Label(x + _WIDTH, y, f"−{-min_offset}", "muted", "end", 10))
    return Drawing(width=width, height=y + MARGIN, title=title, marks=marks)


def _plot(
    head: HeadSummary, x: float, y: float, max_offset: int, min_offset: int
) -> Iterator[Mark]:
    """Draw one head with offsets from `max_offset` at the left to `min_offset` at the right."""
    step, bottom = _WIDTH / (max_offset - min_offset + 1), y + _HEIGHT

    def center(offset: int) -> float:
        return x + (max_offset - offset + 0.5) * step

    def points(weights: Sequence[tuple[int, float]]) -> dict[int, tuple[float, float]]:
        return {
            offset: (center(offset), bottom - _HEIGHT * sqrt(min(max(weight, 0), 1)))
            for offset, weight in weights
            if min_offset <= offset <= max_offset
        }

    if not (head.measured_offsets or head.expected_offsets):  # such as cross-attention
        yield Label(x + _WIDTH / 2, y + _HEIGHT / 2 + 4, "no offsets", anchor="middle", size=10)
        return
    if head.pattern:
        yield Label(x + _WIDTH / 2, y - 6, visible_text(head.pattern), "text", "middle", 10)
    yield Bars([(center(0) - 0.5, y, 1, _HEIGHT), (x, bottom, _WIDTH, 1)], "rule")
    tops = points([pair for pair in head.measured_offsets if pair[1] > 0]).values()
    if tops:
        boxes = [(middle - 0.4 * step, top, 0.8 * step, bottom - top) for middle, top in tops]
        yield Bars(boxes, "bar")
    line = points(sorted(head.expected_offsets))
    if line:
        yield Polyline(list(line.values()), "highlight", 1.4)
    if head.prefers and head.weights_offset in line:
        yield Circle(*line[head.weights_offset], 3, "highlight")
