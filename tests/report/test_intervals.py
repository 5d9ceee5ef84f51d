import pytest

from harken.measure.interval import Estimate
from harken.report.intervals import Point, Series, interval_figure

from .parsed import Element, parse


def point(at: float, value: float, low: float = 0.0, high: float = 1.0) -> Point:
    return Point(at=at, metric=Estimate(value, low, high))


def figure(*series: Series) -> Element:
    return parse(interval_figure(series, title="t", x_label="copies", y_label="right"))


def corners(path: Element) -> list[tuple[float, float]]:
    points = (part.split() for part in path.attributes["d"].removeprefix("M").split("L"))
    return [(float(x), float(y)) for x, y in points]


def drawn(found: Element) -> tuple[list[Element], list[Element]]:
    """Lines, and bars."""
    paths = found.one("svg", "lines").all("path")
    bars = [path for path in paths if "bars" in path.attributes["class"].split()]
    return [path for path in paths if path not in bars], bars


def places(found: Element) -> list[tuple[float, float]]:
    return [
        (float(dot.attributes["cx"].rstrip("%")), float(dot.attributes["cy"].rstrip("%")))
        for dot in found.one("svg", "plot").all("circle")
    ]


def test_points_land_where_the_axes_say() -> None:
    found = figure(Series(name="a", points=[point(1, 0.0), point(10, 0.5), point(100, 1.0)]))
    assert places(found) == [(6, 100), (50, 50), (94, 0)]  # ratios are distances
    (line,), _ = drawn(found)
    assert corners(line) == [(60, 1000), (500, 500), (940, 0)]
    plot = found.one("svg", "plot")
    assert [one.text for one in plot.all("text", "y")] == ["0", "25", "50", "75", "100"]
    ticks = plot.all("text", "x")
    assert [one.text for one in ticks] == ["1", "10", "100"]
    assert [one.attributes["x"] for one in ticks] == ["6.00%", "50.00%", "94.00%"]


def test_bars_reach_from_low_to_high() -> None:
    found = figure(Series(name="a", points=[point(1, 0.3, 0.2, 0.6), point(2, 0.5, 0.4, 0.9)]))
    _, (bars,) = drawn(found)
    assert bars.attributes["d"] == "M60.0 800.0V400.0M940.0 600.0V100.0"


def test_points_at_one_number_stand_apart_around_it() -> None:
    series = [Series(name=name, points=[point(1, 0.5), point(2, 0.5)]) for name in "abc"]
    found = places(figure(*series, Series(name="d", points=[point(2, 0.5)])))
    ones, twos = sorted(x for x, _ in found if x < 50), sorted(x for x, _ in found if x > 50)
    assert len(set(found)) == 7
    assert ones[1] == 6 and ones[2] - 6 == pytest.approx(6 - ones[0])
    assert sum(twos) / 4 == pytest.approx(94)


def test_a_line_may_come_from_a_point_of_another() -> None:
    first = point(1, 0.1)
    found = figure(
        Series(name="a", points=[first]),
        Series(name="b", points=[point(5, 0.9)], start=first),
    )
    assert places(found) == [(6, 90), (94, 10)]  # the start is drawn by its own series alone
    (line,), bars = drawn(found)
    assert line.attributes["class"] == "c1"
    assert corners(line) == [(60, 900), (940, 100)]
    assert len(bars) == 2


def test_one_number_alone_stands_in_the_middle() -> None:
    assert places(figure(Series(name="a", points=[point(3, 0.5)]))) == [(50, 50)]


def test_it_can_be_read_aloud_and_names_are_safe() -> None:
    found = figure(Series(name="<b>&", points=[point(5, 0.413, 0.35, 0.48)]))
    spoken = found.one("svg", "plot").attributes["aria-label"]
    assert spoken == "t. <b>&, 5: 41.3 % (35.0 % - 48.0 %)."
    assert found.one("ul", "legend").one("li").text == "<b>&"
    assert found.all("b") == []


@pytest.mark.parametrize("at", [0, -1, float("inf"), float("nan")])
def test_a_number_without_a_logarithm_is_refused(at: float) -> None:
    with pytest.raises(ValueError, match="no place for"):
        point(at, 0.5)
