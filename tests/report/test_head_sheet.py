from dataclasses import replace
from itertools import pairwise

import pytest

from harken.inspection.heads import HeadSummary
from harken.report.canvas import Bars, Circle, Drawing, Label, Polyline
from harken.report.head_sheet import head_sheet

MEASURED = [(5, 0.04), (1, 0.64), (0, 0.16), (-1, 0.09)]
HEADS = [
    HeadSummary(
        module="encoder.layers.0.attention",
        head=number,
        pattern="previous 0.64",
        measured_offsets=MEASURED,
        expected_offsets=[(0, 0.25), (1, 0.81), (2, 0.0)],
        weights_offset=1,
        prefers=True,
    )
    for number in (1, 2, 3)
]


def measured(drawn: Drawing) -> list[Bars]:
    """The bars of each head; the first ones are the legend's."""
    return [mark for mark in drawn.marks if isinstance(mark, Bars) and mark.color == "bar"][1:]


def test_bars_are_square_roots_and_the_past_is_at_the_left() -> None:
    boxes = measured(head_sheet(HEADS, "t"))[0].boxes
    assert len(boxes) == len(MEASURED)
    whole = boxes[1][3] / 0.8
    assert [height / whole for _, _, _, height in boxes] == pytest.approx([0.2, 0.8, 0.4, 0.3])
    assert len({round(y + height, 6) for _, y, _, height in boxes}) == 1  # one ground line
    steps = [after[0] - before[0] for before, after in pairwise(boxes)]
    assert steps[0] == pytest.approx(4 * steps[1]) and steps[1] == pytest.approx(steps[2])
    assert steps[1] > 0


def test_the_line_meets_the_bars_and_its_dot_is_the_preferred_offset() -> None:
    drawn = head_sheet(HEADS, "t")
    lines = [mark for mark in drawn.marks if isinstance(mark, Polyline)][1:]
    dots = [mark for mark in drawn.marks if isinstance(mark, Circle)][1:]
    x, y, width, height = measured(drawn)[0].boxes[1]
    points = dict(lines[0].points)
    assert points[dots[0].x] == dots[0].y == pytest.approx(y + height - 0.9 * height / 0.8)
    assert dots[0].x == pytest.approx(x + width / 2)
    assert (len(lines), len(dots)) == (3, 3)


def test_everything_is_inside_the_paper() -> None:
    cross = HeadSummary(module="decoder.layers.0.cross", head=1)
    drawn = head_sheet([*HEADS, cross], "A title")
    for mark in drawn.marks:
        if isinstance(mark, Label):
            assert 0 < mark.x < drawn.width and 0 < mark.y < drawn.height
            if mark.anchor == "start":
                assert mark.x + 6.3 * len(mark.text) < drawn.width
        elif isinstance(mark, Bars):
            for x, y, width, height in mark.boxes:
                assert x >= 0 and x + width <= drawn.width and y + height <= drawn.height


def test_offsets_without_attention_are_left_out() -> None:
    far = replace(HEADS[0], measured_offsets=[*MEASURED, (31, 0.001), (-17, 0.0)])
    drawn = head_sheet([far], "t")
    texts = [mark.text for mark in drawn.marks if isinstance(mark, Label)]
    assert texts[-3:] == ["5", "0", "−1"]
