"""Measured shares against a number, each with its interval: points, bars and the lines between.

The horizontal axis is logarithmic (from one to two is as far as from five to ten) and has its ticks
where something was measured. Points at the same number stand a little apart, so that none hides
another. Like the curves, the figure narrows without shrinking its type.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harken.measure.interval import Estimate, shown, shown_interval
from harken.report.axis import label
from harken.report.markup import attribute, text

_COLOURS = 6  # classes c0..c5 in page.css
_VIEW = 1000  # units of the nested viewport
_MARGIN = 6.0  # per cent of the plot on both sides of the points
_APART = 1.6  # per cent of the plot between points at the same number
_MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BAR = "stroke-width:7;opacity:.4"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A share, measured at some number."""

    at: float
    metric: Estimate

    def __post_init__(self) -> None:
        if not 0 < self.at < math.inf:
            raise ValueError(f"a logarithmic axis has no place for {self.at}")

    @property
    def share(self) -> float:
        assert self.metric.value is not None, "a point has a value"
        return self.metric.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Points that a line connects, in order; `start` is a point of another series to come from."""

    name: str
    points: Sequence[Point]
    start: Point | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Frame:
    """From data to per cent of the plot; y grows downwards."""

    first: float
    last: float

    def x(self, at: float, shift: float = 0.0) -> float:
        if self.last == self.first:
            return 50.0 + shift
        share = math.log(at / self.first) / math.log(self.last / self.first)
        return _MARGIN + (100 - 2 * _MARGIN) * share + shift

    def y(self, share: float) -> float:
        return 100 * (1 - min(max(share, 0.0), 1.0))


def interval_figure(series: Sequence[Series], *, title: str, x_label: str, y_label: str) -> str:
    """A figure with its title, a legend that gives the last values, and both axes."""
    assert 0 < len(series) <= _COLOURS, len(series)
    places = sorted({point.at for one in series for point in one.points})
    frame = _Frame(first=places[0], last=places[-1])
    shifts = _shifts(series)
    drawn = list(zip(series, shifts, strict=True))
    lines = "".join(_line(i, one, moved, frame) for i, (one, moved) in enumerate(drawn))
    bars = "".join(_bars(i, one, moved, frame) for i, (one, moved) in enumerate(drawn))
    dots = "".join(_dots(i, one, moved, frame) for i, (one, moved) in enumerate(drawn))
    legend = "".join(f"<li>{_swatch(i)}{text(one.name)}</li>" for i, one in enumerate(series))
    spoken = f"{title}. " + " ".join(map(_spoken, series))
    return (
        f'<figure class="curve"><figcaption><strong>{text(title)}</strong></figcaption>'
        f'<ul class="legend">{legend}</ul><p class="y-label">{text(y_label)}</p>'
        f'<svg class="plot" role="img" style="--stage-lines:0" aria-label={attribute(spoken)}>'
        f'{_axes(frame, places)}<svg class="lines" viewBox="0 0 {_VIEW} {_VIEW}" '
        f'preserveAspectRatio="none" width="100%" height="100%">{bars}{lines}</svg>{dots}</svg>'
        f'<p class="x-label">{text(x_label)}</p></figure>'
    )


def _shifts(series: Sequence[Series]) -> list[dict[float, float]]:
    """For each series, how far its point at a number stands aside; all of a number are centred."""
    crowds: dict[float, list[int]] = {}
    for number, one in enumerate(series):
        for point in one.points:
            crowds.setdefault(point.at, []).append(number)
    return [
        {
            at: _APART * (crowd.index(number) - (len(crowd) - 1) / 2)
            for at, crowd in crowds.items()
            if number in crowd
        }
        for number in range(len(series))
    ]


def _line(index: int, one: Series, shifts: dict[float, float], frame: _Frame) -> str:
    unit = _VIEW / 100
    points = [*([one.start] if one.start else []), *one.points]
    corners = [
        f"{frame.x(point.at, shifts.get(point.at, 0.0)) * unit:.1f} "
        f"{frame.y(point.share) * unit:.1f}"
        for point in points
    ]
    return f'<path class="c{index}" d="M{"L".join(corners)}"/>' if len(corners) > 1 else ""


def _bars(index: int, one: Series, shifts: dict[float, float], frame: _Frame) -> str:
    unit = _VIEW / 100
    moves = "".join(
        f"M{frame.x(point.at, shifts[point.at]) * unit:.1f} {frame.y(point.metric.low) * unit:.1f}"
        f"V{frame.y(point.metric.high) * unit:.1f}"
        for point in one.points
        if point.metric.low is not None and point.metric.high is not None
    )
    return f'<path class="c{index} bars" style="{_BAR}" d="{moves}"/>'


def _dots(index: int, one: Series, shifts: dict[float, float], frame: _Frame) -> str:
    return "".join(
        f'<circle class="c{index}" cx="{frame.x(point.at, shifts[point.at]):.2f}%" '
        f'cy="{frame.y(point.share):.2f}%" r="4.5"><title>{text(_told(one, point))}</title>'
        "</circle>"
        for point in one.points
    )


def _axes(frame: _Frame, places: Sequence[float]) -> str:
    rows = "".join(
        f'<line class="grid" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>'
        f'<text class="y" y="{y:.2f}%" dx="-8" dy="4">{label(100 * mark)}</text>'
        for mark, y in ((mark, frame.y(mark)) for mark in _MARKS)
    )
    columns = "".join(
        f'<text class="x" x="{frame.x(place):.2f}%" y="100%" dy="20">{label(place)}</text>'
        for place in places
    )
    ground = '<line class="ground" x2="100%" y1="100%" y2="100%"/>'
    return f'<g class="axes">{rows}{columns}{ground}</g>'


def _swatch(index: int) -> str:
    return (
        '<svg class="swatch" width="22" height="10" aria-hidden="true">'
        f'<path class="c{index}" d="M1 5H21"/><circle class="c{index}" cx="11" cy="5" r="4"/></svg>'
    )


def _told(one: Series, point: Point) -> str:
    value = shown(point.share, "share")
    return f"{one.name}, {label(point.at)}: {value} ({shown_interval(point.metric)})"


def _spoken(one: Series) -> str:
    return " ".join(f"{_told(one, point)}." for point in one.points)
