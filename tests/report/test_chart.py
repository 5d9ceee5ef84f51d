import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.interval import Estimate
from harken.report.axis import format_measured, format_tick, log_axis, ticks
from harken.report.chart import Series, VerticalLine, chart, stacked_bar, thin_points

from .parsed import Element, parse


def figure(*curves: Series, log_y: bool = False, marks: tuple[VerticalLine, ...] = ()) -> Element:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        html = chart(
            curves, title="t", x_label="step", y_label="loss", log_y=log_y, vertical_lines=marks
        )
    assert "nan" not in html and "inf" not in html
    return parse(html)


def paths(plot: Element) -> list[list[list[tuple[float, float]]]]:
    """Points of each line, by curve and by unbroken part."""
    drawn = plot.find("svg", "lines").find_all("path")
    return [
        [
            [(float(x), float(y)) for x, y in (point.split() for point in part.split("L"))]
            for part in path.attributes["d"].split("M")[1:]
        ]
        for path in drawn
    ]


def tick_texts(plot: Element, css_class: str) -> list[str]:
    return [element.text for element in plot.find("svg", "plot").find_all("text", css_class)]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (0.13, 4.2, [0, 1, 2, 3, 4, 5]),
        (0, 0.3, [0, 0.1, 0.2, 0.3]),
        (-3, 7, [-4, -2, 0, 2, 4, 6, 8]),
        (1e-6, 3e-6, [1e-6, 1.5e-6, 2e-6, 2.5e-6, 3e-6]),
        (2, 2, [1, 1.5, 2, 2.5, 3]),
        (0, 0, [-1, -0.5, 0, 0.5, 1]),
        (2, 2 + 1e-15, [1, 1.5, 2, 2.5, 3]),
    ],
)
def test_ticks_by_hand(low: float, high: float, expected: list[float]) -> None:
    assert ticks(float(low), float(high)) == expected


@given(st.floats(-1e6, 1e6), st.floats(1e-5, 1e3))
def test_ticks_are_even_and_enclose(low: float, share: float) -> None:
    high = low + share * max(abs(low), 1e-6)
    marks = ticks(low, high)
    step = marks[1] - marks[0]
    assert marks[0] <= low + 1e-6 * step and marks[-1] >= high - 1e-6 * step
    assert 3 <= len(marks) <= 8
    np.testing.assert_allclose(np.diff(marks), step, rtol=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.3, 4.2, (0.2, 5, [0.2, 0.5, 1, 2, 5])),
        (0.0075, 16, (0.005, 20, [0.01, 0.1, 1, 10])),
        (1, 1, (1, 2, [1, 2])),
        (3, 3, (2, 5, [2, 5])),
        (1e-9, 1e3, (1e-9, 1e3, [1e-9, 1e-6, 1e-3, 1e0, 1e3])),
    ],
)
def test_log_axis_by_hand(low: float, high: float, expected: object) -> None:
    assert log_axis(float(low), float(high))[:3] == expected


def test_labels() -> None:
    assert [format_tick(float(x)) for x in (0, 0.05, 2.5, 1000, 20000.5, -3, 1e-6, 2e7)] == [
        "0", "0.05", "2.5", "1000", "20\u202f000.5", "−3", "1e−6", "2e7",
    ]  # fmt: skip
    assert [format_measured(x) for x in (0.0, 0.00312, 0.3, 4.256, 143.3, -12.0, math.nan)] == [
        "0", "0.00312", "0.300", "4.26", "143", "−12.0", "–",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("x", "y", "log_y", "middle"),
    [
        ([0, 50, 100], [0.0, 1.0, 4.0], False, 750),
        ([2, 0, 1], [4.0, 0.0, 2.0], False, 500),  # is sorted
        ([0, 1, 2, 3], [0.01, 1.0, 100.0, -1.0], True, 500),  # without the negative value
    ],
)
def test_lines_are_where_the_axes_say(
    x: list[int], y: list[float], log_y: bool, middle: float
) -> None:
    plot = figure(Series(name="a", x=x, y=y), log_y=log_y)
    assert paths(plot) == [[[(0, 1000), (500, middle), (1000, 0)]]]
    if x[-1] == 100:
        assert tick_texts(plot, "y") == ["0", "1", "2", "3", "4"]
        assert tick_texts(plot, "x") == ["0", "20", "40", "60", "80", "100"]


def test_gaps_split_lines_and_isolated_points_are_dots() -> None:
    nan = math.nan
    values = [0.0, 1.0, nan, 4.0, math.inf, 2.0, 2.0]
    plot = figure(Series(name="a", x=range(7), y=values))
    parts = paths(plot)[0]
    assert [len(part) for part in parts] == [2, 2]
    dot = plot.find("circle")
    assert dot.attributes["cx"] == "50.00%" and dot.attributes["cy"] == "0.00%"


def test_one_point_is_a_dot_in_the_middle() -> None:
    plot = figure(Series(name="a", x=[7], y=[0.3]))
    assert plot.find("circle").attributes["cx"] == "50.00%"
    assert tick_texts(plot, "x") == ["7"]


def test_equal_values_are_in_the_middle() -> None:
    for noise in (0.0, 4e-16):
        ((part,),) = paths(figure(Series(name="a", x=[1, 2], y=[2.0, 2.0 - noise])))
        assert {y for _, y in part} == {500}


@pytest.mark.parametrize("values", [[], [math.nan, math.nan]])
def test_empty_chart(values: list[float]) -> None:
    plot = figure(Series(name="a", x=range(len(values)), y=values))
    assert "No data" in plot.text and not plot.find_all("svg", "plot")
    assert "No data" in figure().text


def test_legend_and_description() -> None:
    plot = figure(
        Series(name="full", x=[0, 5, 9], y=[3.0, 1.0, 2.0]), Series(name="gap", x=[0], y=[math.nan])
    )
    legend = [item.text for item in plot.find("ul").find_all("li")]
    assert legend == ["full last value 2.00", "gap no values"]
    description = plot.find("svg", "plot").attributes["aria-label"]
    assert "full: from 3.00 at 0 to 2.00 at 9, lowest 1.00 at 5. gap: no values." in description


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 x but 3 y"):
        Series(name="a", x=[1, 2], y=[1.0, 2.0, 3.0])


def test_thinning_keeps_ends_and_extremes() -> None:
    random = np.random.default_rng(0)
    points = np.column_stack([np.arange(50_021.0), random.normal(size=50_021)])
    points[31_337, 1], points[4_242, 1] = 99.0, -99.0
    thinned = thin_points(points, columns=97)
    assert len(thinned) <= 4 * 97
    assert {(0.0, points[0, 1]), (31_337.0, 99.0), (4_242.0, -99.0)} <= set(map(tuple, thinned))
    np.testing.assert_array_equal(thinned[-1], points[-1])
    # The envelope of every column, not only of the whole.
    edges = np.linspace(0, 50_020, 98)
    for left, right in itertools.pairwise(edges):
        before = points[(points[:, 0] >= left) & (points[:, 0] < right), 1]
        after = thinned[(thinned[:, 0] >= left) & (thinned[:, 0] < right), 1]
        assert (before.min(), before.max()) == (after.min(), after.max())
    np.testing.assert_array_equal(thin_points(points[:388], columns=97), points[:388])


def test_many_points_make_a_small_figure() -> None:
    steps = np.arange(100_000)
    curve = Series(name="a", x=steps.tolist(), y=np.sin(steps).tolist())
    drawn = chart([curve], title="t", x_label="x", y_label="y")
    assert 5_000 < len(drawn) < 40_000


def test_marks_are_at_their_steps_and_names_do_not_overlap() -> None:
    marks = (
        VerticalLine(60, "finetune"),
        VerticalLine(0, "a rather long stage"),
        VerticalLine(5, "next"),
    )
    plot = figure(Series(name="a", x=[10, 100], y=[1.0, 2.0]), marks=marks)
    texts = [group.find("text") for group in plot.find_all("g", "marks")]
    placed = [(t.text, t.attributes["x"], int(t.attributes["y"])) for t in texts]
    assert [(name, x) for name, x, _ in placed] == [
        ("a rather long stage", "0.00%"),
        ("next", "5.00%"),
        ("finetune", "60.00%"),
    ]
    assert placed[1][2] < placed[0][2] == placed[2][2]
    assert "--mark-lines:2" in plot.find("svg", "plot").attributes["style"]


def test_axis_includes_zero_only_if_near() -> None:
    for low, first_tick in ((1.4, "0"), (3.0, "3")):
        plot = figure(Series(name="a", x=[0, 1], y=[low, 4.0]))
        assert tick_texts(plot, "y")[0] == first_tick


def test_points_and_intervals_are_where_the_axes_say() -> None:
    points = Series(
        name="a", x=[0.25, 1.0], y=[0.5, 1.0], intervals=[(0.4, 0.7), None], radii=[9.0, 3.0]
    )
    html = chart(
        [points], x_label="sure", y_label="right", percent=True, diagonal=True, description="both"
    )
    drawn = parse(html)
    first, second = (circle.attributes for circle in drawn.find_all("circle"))
    assert (first["cx"], first["cy"], first["r"]) == ("25.00%", "50.00%", "9.0")
    assert (second["cx"], second["cy"], second["r"]) == ("100.00%", "0.00%", "3.0")
    bar = drawn.find("line", "interval").attributes
    assert (bar["y1"], bar["y2"]) == ("30.00%", "60.00%")
    assert drawn.find("svg").attributes["aria-label"] == "both"
    assert tick_texts(drawn, "x") == ["0", "25", "50", "75", "100"]


def test_percentages_start_at_zero_and_end_above_the_values() -> None:
    def drawn(x: list[float], y: list[float]) -> Element:
        marks = [VerticalLine(0.25, "a"), VerticalLine(0.75, "rather long")]
        series = [Series(name="a", x=x, y=y)]
        return parse(chart(series, x_label="x", y_label="y", percent=True, vertical_lines=marks))

    plot = drawn([0.0, 0.5, 1.0], [0.0, 0.1, 0.2])
    assert paths(plot) == [[[(0, 1000), (500, 500), (1000, 0)]]]
    assert tick_texts(plot, "y") == ["0", "5", "10", "15", "20"]
    left, right = (group.find("text").attributes for group in plot.find_all("g", "marks"))
    assert ("text-anchor" in left, "text-anchor" in right) == (False, True)
    assert paths(drawn([0.5, 1.0], [0.0, 0.0])) == [[[(500, 1000), (1000, 1000)]]]
    assert drawn([1.0], [1.0]).find("circle").attributes["cy"] == "0.00%"


def test_parts_fill_the_bar() -> None:
    half, none = Estimate(0.5, 0.4, 0.6), Estimate(0.0, 0.0, 0.1)
    drawn = parse(stacked_bar({"right": half, "wrong": half, "none": none}))
    rects = [
        (rect.attributes["x"], rect.attributes["width"])
        for rect in drawn.find("svg", "parts").find_all("rect")
    ]
    assert rects == [("0.00%", "50.00%"), ("50.00%", "50.00%"), ("100.00%", "0.00%")]
    assert [item.text for item in drawn.find_all("li")][2] == "none 0.0\u202f%, 0.0 % - 10.0 %"
