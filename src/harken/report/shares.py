"""Plots of one share against another, as inline SVG; and one bar of the parts of a whole.

As in the learning curves, positions are per cent of the plot, so that a phone narrows it without
shrinking its labels. Both axes are labelled in per cent; the vertical one may end before 100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harken.measure.interval import Estimate, shown_interval
from harken.report.axis import label, ticks
from harken.report.curves import thin
from harken.report.markup import attribute, text

_VIEW = 1000  # units of the nested viewport
_LEAST = 0.05  # the vertical axis shows at least so much
_PARTS = ("c0", "c1", "c3")  # colours of page.css that a colour-blind reader tells apart


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """A measured share with its interval; `weight` of 0..1 makes it larger."""

    x: float
    y: Estimate
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A place on the horizontal axis that is worth a name."""

    x: float
    name: str


def dots_plot(dots: Sequence[Dot], *, x_label: str, y_label: str, spoken: str) -> str:
    """Dots with their intervals, and the line on which both shares are equal."""
    drawn = "".join(_bar(dot) + _circle(dot) for dot in dots if dot.y.value is not None)
    even = '<line class="even" y1="100%" x2="100%" y2="0"/>'
    return _plot(even + drawn, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), x_label, y_label, spoken)


def _bar(dot: Dot) -> str:
    if dot.y.low is None or dot.y.high is None:
        return ""
    return (
        f'<line class="interval" x1="{100 * dot.x:.2f}%" x2="{100 * dot.x:.2f}%" '
        f'y1="{100 - 100 * dot.y.high:.2f}%" y2="{100 - 100 * dot.y.low:.2f}%"/>'
    )


def _circle(dot: Dot) -> str:
    return (
        f'<circle class="c0" cx="{100 * dot.x:.2f}%" cy="{100 - 100 * (dot.y.value or 0):.2f}%" '
        f'r="{3 + 6 * dot.weight**0.5:.1f}"/>'
    )


def line_plot(
    x: Sequence[float],
    y: Sequence[float],
    *,
    marks: Sequence[Mark],
    x_label: str,
    y_label: str,
    spoken: str,
) -> str:
    """A line from left to right, its points in order; one point is a dot."""
    steps = ticks(0.0, max(_LEAST, *y))
    top = steps[-1]
    points = np.column_stack((np.asarray(x, dtype=np.float64), 1 - np.asarray(y) / top))
    if len(points) == 1:
        (across, down) = points[0]
        line = f'<circle class="c0" cx="{100 * across:.2f}%" cy="{100 * down:.2f}%" r="3.5"/>'
    else:
        path = "L".join(f"{_VIEW * across:.1f} {_VIEW * down:.1f}" for across, down in thin(points))
        line = (
            f'<svg class="lines" viewBox="0 0 {_VIEW} {_VIEW}" preserveAspectRatio="none" '
            f'width="100%" height="100%"><path class="c0" d="M{path}"/></svg>'
        )
    return _plot(line + "".join(map(_mark, marks)), top, steps, x_label, y_label, spoken)


def _mark(mark: Mark) -> str:
    flip = mark.x > 0.5
    anchor = ' text-anchor="end"' if flip else ""
    return (
        f'<g class="stages"><line x1="{100 * mark.x:.2f}%" x2="{100 * mark.x:.2f}%" y1="-8" '
        f'y2="100%"/><text x="{100 * mark.x:.2f}%" dx="{-5 if flip else 5}" y="-6"{anchor}>'
        f"{text(mark.name)}</text></g>"
    )


def _plot(
    inside: str, top: float, steps: Sequence[float], x_label: str, y_label: str, spoken: str
) -> str:
    rows = "".join(
        f'<line class="grid" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>'
        f'<text class="y" y="{y:.2f}%" dx="-8" dy="4">{label(100 * step)}</text>'
        for step, y in ((step, 100 - 100 * step / top) for step in steps)
    )
    columns = "".join(
        f'<text class="x" x="{x}%" y="100%" dy="20">{x}</text>' for x in (0, 25, 50, 75, 100)
    )
    ground = '<line class="ground" x2="100%" y1="100%" y2="100%"/>'
    return (
        f'<p class="y-label">{text(y_label)}, %</p>'
        f'<svg class="plot" role="img" style="--stage-lines:1" aria-label={attribute(spoken)}>'
        f'<g class="axes">{rows}{columns}{ground}</g>{inside}</svg>'
        f'<p class="x-label">{text(x_label)}, %</p>'
    )


def parts_bar(parts: Mapping[str, Estimate]) -> str:
    """Parts of a whole side by side, each named with its share; a part of nothing is named too."""
    bar, names, start = "", "", 0.0
    for (name, part), colour in zip(parts.items(), _PARTS, strict=True):
        width = 100 * (part.value or 0.0)
        bar += f'<rect class="{colour}" x="{start:.2f}%" width="{width:.2f}%" height="100%"/>'
        names += (
            '<li><svg class="swatch" width="12" height="12" aria-hidden="true">'
            f'<rect class="{colour}" width="12" height="12"/></svg>{text(name)} '
            f'<span class="muted">{width:.1f}\u202f%, {shown_interval(part)}</span></li>'
        )
        start += width
    return (
        f'<svg class="parts" height="26" aria-hidden="true">{bar}</svg>'
        f'<ul class="legend">{names}</ul>'
    )
