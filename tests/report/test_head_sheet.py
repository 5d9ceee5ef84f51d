from io import BytesIO
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from PIL import Image

from harken.report.head_sheet import (
    Bars,
    Dot,
    HeadPlot,
    HeadRow,
    Path,
    Share,
    Sheet,
    Words,
    sheet,
    sheet_png,
    sheet_svg,
)

SVG = "{http://www.w3.org/2000/svg}"
MEASURED = [Share(5, 0.04), Share(1, 0.64), Share(0, 0.16), Share(-1, 0.09)]
PLOT = HeadPlot(
    name="previous 0.64",
    measured=MEASURED,
    weights=[Share(0, 0.25), Share(1, 0.81), Share(2, 0.0)],
    preferred=1,
)
ROWS = [
    HeadRow(name="encoder 1", heads=[PLOT, PLOT, PLOT]),
    HeadRow(name="decoder 1 cross", heads=[HeadPlot(name="")]),
]


def measured(drawn: Sheet) -> list[Bars]:
    """Of each head; the first is the legend's."""
    bars = [mark for mark in drawn.marks if isinstance(mark, Bars) and mark.colour == "measured"]
    return bars[1:]


def test_bars_are_square_roots_and_the_past_is_at_the_left() -> None:
    bars = measured(sheet(ROWS[:1], "t"))[0].boxes
    assert len(bars) == len(MEASURED)
    whole = bars[1].height / 0.8
    assert [box.height / whole for box in bars] == pytest.approx([0.2, 0.8, 0.4, 0.3])
    assert len({round(box.y + box.height, 6) for box in bars}) == 1  # all stand on one ground
    assert [box.x for box in bars] == sorted(box.x for box in bars)
    steps = [after.x - before.x for before, after in pairwise(bars)]
    assert steps[0] == pytest.approx(4 * steps[1]) and steps[1] == pytest.approx(steps[2])


def test_the_line_meets_the_bars_and_its_dot_is_the_preferred_offset() -> None:
    drawn = sheet(ROWS[:1], "t")
    lines = [mark for mark in drawn.marks if isinstance(mark, Path)][1:]
    dots = [mark for mark in drawn.marks if isinstance(mark, Dot)][1:]
    bar = measured(drawn)[0].boxes[1]
    high = bar.height / 0.8
    ground = bar.y + bar.height
    points = dict(lines[0].points)
    assert points[dots[0].x] == dots[0].y == pytest.approx(ground - 0.9 * high)
    assert dots[0].x == pytest.approx(bar.x + bar.width / 2)
    assert (len(lines), len(dots)) == (3, 3)


def test_everything_is_inside_the_paper() -> None:
    drawn = sheet(ROWS, "A title")
    for mark in drawn.marks:
        if isinstance(mark, Words):
            assert 0 < mark.x < drawn.width and 0 < mark.y < drawn.height
        elif isinstance(mark, Bars):
            for box in mark.boxes:
                assert box.x >= 0 and box.x + box.width <= drawn.width
                assert box.y + box.height <= drawn.height


def test_offsets_that_no_head_looks_at_are_left_out() -> None:
    far = HeadPlot(name="", measured=[*MEASURED, Share(31, 0.001), Share(-17, 0.0)])
    texts = [one.words for one in sheet([HeadRow(name="1", heads=[far])], "t").marks
             if isinstance(one, Words)]  # fmt: skip
    assert texts[-3:] == ["5", "0", "1"]


def test_the_svg_is_whole_follows_the_theme_and_is_the_same_each_time() -> None:
    hostile = "<script>&\u202e"
    rows = [HeadRow(name=hostile, heads=[PLOT])]
    svg = sheet_svg(rows, hostile)
    root = ElementTree.fromstring(svg)
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert texts.count("<script>&\\u202e") == 2 and "previous 0.64" in texts
    assert "prefers-color-scheme: dark" in svg and "<script" not in svg
    assert svg == sheet_svg(rows, hostile)
    classes = {one.attrib.get("class") for one in root.iter()} - {None}
    assert all(f".{one}{{fill:" in svg for one in classes)


def test_the_png_is_the_same_sheet() -> None:
    drawn, file = sheet(ROWS, "t"), sheet_png(ROWS, "t")
    with Image.open(BytesIO(file)) as image:
        pixels = image.convert("RGB")
    assert pixels.size == pytest.approx((2 * drawn.width, 2 * drawn.height), abs=2)
    box = measured(drawn)[0].boxes[2]
    inside = (round(2 * (box.x + box.width / 4)), round(2 * (box.y + box.height * 0.7)))
    assert pixels.getpixel(inside) == (0x8D, 0xB8, 0xD8)
    assert file == sheet_png(ROWS, "t")
