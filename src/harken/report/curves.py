"""Line charts as inline SVG that keeps its type size at any width.

Positions are per cent of the plot and the lines live in a nested viewport that is stretched, so a
phone narrows the chart without shrinking its labels. A value that is not finite (or not positive
on a logarithmic axis) is a gap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harken.report.axis import label, log_axis, rounded, ticks
from harken.report.markup import attribute, grouped, text

_COLOURS = 6  # classes c0..c5 in page.css; a second round is dashed
_COLUMNS = 400  # of the plot, each drawn by at most four points
_VIEW = 1000  # units of the nested viewport
# Stage names are spread over lines as if the plot were a phone's: pixels a letter, and in all.
_LETTER, _PHONE = 7.0, 290.0

Points = NDArray[np.float64]  # [points, 2]: step, value


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One quantity over the steps of a run."""

    name: str
    steps: Sequence[int]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.values):
            raise ValueError(
                f"curve {self.name!r}: {len(self.steps)} steps but {len(self.values)} values"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A part of training that starts at a step: reading, then questions."""

    name: str
    first_step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Frame:
    """From data to per cent of the plot; y grows downwards."""

    first: float  # step at the left
    last: float
    bottom: float
    top: float
    marks: Sequence[float]  # ticks of y
    log_y: bool

    def x(self, step: float) -> float:
        span = self.last - self.first
        return 100 * (step - self.first) / span if span else 50.0

    def y(self, value: float) -> float:
        bottom, top, at = self.bottom, self.top, value
        if self.log_y:
            bottom, top, at = math.log(bottom), math.log(top), math.log(at)
        return 100 * (top - at) / (top - bottom)


def curve_figure(
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_y: bool = False,
    stages: Sequence[Stage] = (),
) -> str:
    """A figure with its title, a legend that gives the last values, axes and stage marks."""
    segments = [_segments(curve, log_y) for curve in curves]
    drawn = [points for parts in segments for points in parts]
    heading = f"<figcaption><strong>{text(title)}</strong></figcaption>"
    if not drawn:
        return (
            f'<figure class="curve">{heading}<p class="muted">No points to draw yet.</p></figure>'
        )
    everything = np.concatenate(drawn)
    starts = [float(stage.first_step) for stage in stages]
    steps, values = everything[:, 0], everything[:, 1]
    bottom, top, marks = _y_axis(float(values.min()), float(values.max()), log_y)
    frame = _Frame(
        first=min([float(steps.min()), *starts]),
        last=max([float(steps.max()), *starts]),
        bottom=bottom,
        top=top,
        marks=marks,
        log_y=log_y,
    )
    legend = "".join(
        f'<li>{_swatch(i)}{text(curve.name)} <span class="muted">{_ending(parts)}</span></li>'
        for i, (curve, parts) in enumerate(zip(curves, segments, strict=True))
    )
    stage_marks, stage_lines = _stages(stages, frame)
    scale = ", logarithmic" if log_y else ""
    spoken = f"{title}. " + " ".join(map(_spoken, curves, segments))
    lines = "".join(_line(i, parts, frame) for i, parts in enumerate(segments))
    dots = "".join(_dots(i, parts, frame) for i, parts in enumerate(segments))
    return (
        f'<figure class="curve">{heading}<ul class="legend">{legend}</ul>'
        f'<p class="y-label">{text(y_label)}{scale}</p>'
        f'<svg class="plot" role="img" style="--stage-lines:{stage_lines}" '
        f"aria-label={attribute(spoken)}>{_axes(frame)}{stage_marks}"
        f'<svg class="lines" viewBox="0 0 {_VIEW} {_VIEW}" preserveAspectRatio="none" '
        f'width="100%" height="100%">{lines}</svg>{dots}</svg>'
        f'<p class="x-label">{text(x_label)}</p></figure>'
    )


def _segments(curve: Curve, log_y: bool) -> list[Points]:
    points = np.column_stack(
        [np.asarray(curve.steps, dtype=np.float64), np.asarray(curve.values, dtype=np.float64)]
    )
    # A resumed run may log some steps twice, or late.
    points = points[np.argsort(points[:, 0], kind="stable")]
    usable = np.isfinite(points[:, 1]) & ((points[:, 1] > 0) | (not log_y))
    breaks = np.flatnonzero(np.diff(usable.astype(np.int8))) + 1
    parts = np.split(np.arange(len(points)), breaks)
    return [points[part] for part in parts if part.size and usable[part[0]]]


def _y_axis(low: float, high: float, log_y: bool) -> tuple[float, float, list[float]]:
    if log_y:
        return log_axis(low, high)
    # Zero belongs to the picture when it is near: half a loss should look like half.
    marks = ticks(0.0 if 0 < low < high / 2 else low, high)
    return marks[0], marks[-1], marks


def thin(points: Points, *, columns: int = _COLUMNS) -> Points:
    """At most four points a column (first, lowest, highest, last): the drawn envelope is kept."""
    if len(points) <= 4 * columns:
        return points
    edges = np.linspace(points[0, 0], points[-1, 0], columns + 1)[1:-1]
    kept: set[int] = set()
    for part in np.split(np.arange(len(points)), np.searchsorted(points[:, 0], edges)):
        if part.size:
            values = points[part, 1]
            kept |= {
                int(part[0]),
                int(part[values.argmin()]),
                int(part[values.argmax()]),
                int(part[-1]),
            }
    return points[sorted(kept)]


def _line(index: int, parts: Sequence[Points], frame: _Frame) -> str:
    unit = _VIEW / 100
    moves = [
        "M" + "L".join(f"{frame.x(x) * unit:.1f} {frame.y(y) * unit:.1f}" for x, y in thin(part))
        for part in parts
        if len(part) > 1
    ]
    return f'<path class="{_style(index)}" d="{"".join(moves)}"/>' if moves else ""


def _dots(index: int, parts: Sequence[Points], frame: _Frame) -> str:
    """Points with gaps on both sides, which no line would show."""
    alone = (part[0] for part in parts if len(part) == 1)
    return "".join(
        f'<circle class="{_style(index)}" cx="{frame.x(x):.2f}%" cy="{frame.y(y):.2f}%" r="3.5"/>'
        for x, y in alone
    )


def _style(index: int) -> str:
    return f"c{index % _COLOURS}" + (" dashed" if index >= _COLOURS else "")


def _swatch(index: int) -> str:
    return (
        '<svg class="swatch" width="22" height="10" aria-hidden="true">'
        f'<path class="{_style(index)}" d="M1 5H21"/></svg>'
    )


def _axes(frame: _Frame) -> str:
    rows = "".join(
        f'<line class="grid" x2="100%" y1="{y:.2f}%" y2="{y:.2f}%"/>'
        f'<text class="y" y="{y:.2f}%" dx="-8" dy="4">{label(mark)}</text>'
        for mark, y in ((mark, frame.y(mark)) for mark in frame.marks)
    )
    inside = [
        mark
        for mark in ticks(frame.first, frame.last, about=7)
        if frame.first <= mark <= frame.last and mark == int(mark)  # there is no step 2.5
    ]
    columns = "".join(
        f'<text class="x{" odd" if i % 2 else ""}" x="{frame.x(mark):.2f}%" y="100%" dy="20">'
        f"{label(mark)}</text>"
        for i, mark in enumerate(inside or [frame.first])
    )
    ground = '<line class="ground" x2="100%" y1="100%" y2="100%"/>'
    return f'<g class="axes">{rows}{columns}{ground}</g>'


def _stages(stages: Sequence[Stage], frame: _Frame) -> tuple[str, int]:
    """The marks, and how many lines of text their names need above the plot."""
    ends: list[float] = []  # where the text of each line ends, in per cent
    marks = []
    for stage in sorted(stages, key=lambda stage: stage.first_step):
        x = frame.x(float(stage.first_step))
        width = 100 * _LETTER * len(stage.name) / _PHONE
        flip = x + width > 100
        start = x - width if flip else x
        row = next((i for i, end in enumerate(ends) if end <= start), len(ends))
        ends[row : row + 1] = [start + width + 3]
        anchor = ' text-anchor="end"' if flip else ""
        marks.append(
            f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="{-8 - 15 * row}" y2="100%"/>'
            f'<text x="{x:.2f}%" dx="{-5 if flip else 5}" y="{-6 - 15 * row}"{anchor}>'
            f"{text(stage.name)}</text>"
        )
    return (f'<g class="stages">{"".join(marks)}</g>' if marks else ""), len(ends)


def _ending(parts: Sequence[Points]) -> str:
    return f"ends at {rounded(parts[-1][-1, 1])}" if parts else "no values"


def _spoken(curve: Curve, parts: Sequence[Points]) -> str:
    if not parts:
        return f"{curve.name}: no values."
    points = np.concatenate(parts)
    low = points[points[:, 1].argmin()]
    first, last = points[0], points[-1]
    return (
        f"{curve.name}: {rounded(first[1])} at step {grouped(int(first[0]))}, "
        f"{rounded(last[1])} at step {grouped(int(last[0]))}, "
        f"lowest {rounded(low[1])} at step {grouped(int(low[0]))}."
    )
