"""Every head of a model small, side by side: where its weights say it looks, and where it looked.

Bars are measured, the line is read from weights: mean attention at each offset from the token that
asks, the past at the left. Heights are square roots, as the colours of maps are, so that attention
spread over many tokens is seen. Form tells the two apart before colour does.

What is drawn is a list of marks in pixels; two writers put them on paper. The SVG follows the
reader's theme and its text stays text; the PNG is drawn by matplotlib, imported only then. The same
figures give the same bytes.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import sqrt
from typing import Literal, NamedTuple

from harken.report.markup import prose
from harken.report.palette import DARK_SCREEN

_MARGIN, _GAP, _TITLE, _LINE = 20, 10, 24, 18
_WIDE, _HIGH, _NAME = 88, 52, 13  # pixels of a head's plot, and the line above it
_LEAST = 480  # of the sheet, for its legend
_LETTER = 6.6  # about the width of one
Colour = Literal["ink", "muted", "rule", "measured", "weights"]
_LIGHT: dict[Colour, str] = {
    "ink": "#1b1e23",
    "muted": "#5d6672",
    "rule": "#c9ced4",
    "measured": "#8db8d8",
    "weights": "#c2410c",
}
_DARK: dict[Colour, str] = {
    "ink": "#e4e6e8",
    "muted": "#9aa3af",
    "rule": "#3b434e",
    "measured": "#3d6f97",
    "weights": "#ffb070",
}
_PAPER, _DARK_PAPER = "#ffffff", "#14171c"


class Share(NamedTuple):
    """Attention at an offset; positive is back."""

    offset: int
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadPlot:
    """One head; either side may be unknown."""

    name: str  # what it looks like, "" where it is like nothing that has a name
    measured: Sequence[Share] = ()
    weights: Sequence[Share] = ()
    preferred: int | None = None  # the offset that the weights name


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadRow:
    """The heads of one attention."""

    name: str
    heads: Sequence[HeadPlot]


class Words(NamedTuple):
    """Text that stands on y."""

    x: float
    y: float
    words: str
    side: Literal["start", "middle", "end"]
    colour: Colour
    size: int


class Box(NamedTuple):
    """Of a filled rectangle."""

    x: float
    y: float
    width: float
    height: float


class Bars(NamedTuple):
    """Filled rectangles."""

    boxes: tuple[Box, ...]
    colour: Colour


class Path(NamedTuple):
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: Colour
    width: float


class Dot(NamedTuple):
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: Colour


Mark = Words | Bars | Path | Dot


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """Marks on paper, in pixels from the upper left corner."""

    width: float
    height: float
    title: str
    marks: tuple[Mark, ...]


def sheet_svg(rows: Sequence[HeadRow], title: str) -> str:
    """A whole SVG file that needs no other."""
    return _svg(sheet(rows, title))


def sheet_png(rows: Sequence[HeadRow], title: str, scale: float = 2) -> bytes:
    """The same on light paper, with `scale` pixels for one of the SVG."""
    return _png(sheet(rows, title), scale)


def sheet(rows: Sequence[HeadRow], title: str) -> Sheet:
    """A row an attention, a column a head, one axis for all."""
    assert rows and all(row.heads for row in rows), "a sheet has heads"
    left = _MARGIN + _GAP + _LETTER * max(len(row.name) for row in rows)
    columns = max(len(row.heads) for row in rows)
    width = max(left + columns * (_WIDE + _GAP) - _GAP, _LEAST) + _MARGIN
    far, near = _ends(rows)
    marks = list(_heading(title))
    top = _MARGIN + _TITLE + 2 * _LINE
    for head in range(columns):
        x = left + head * (_WIDE + _GAP)
        marks.append(Words(x + _WIDE / 2, top, f"H{head + 1}", "middle", "muted", 11))
    top += _GAP
    for number, row in enumerate(rows):
        y = top + number * (_NAME + _HIGH + _GAP) + _NAME
        marks.append(Words(left - _GAP, y + _HIGH / 2 + 4, prose(row.name), "end", "ink", 12))
        for head, plot in enumerate(row.heads):
            marks += _plot(plot, left + head * (_WIDE + _GAP), y, far, near)
    bottom = top + len(rows) * (_NAME + _HIGH + _GAP) + 4
    for head in range(columns):
        marks += _axis(left + head * (_WIDE + _GAP), bottom, far, near)
    return Sheet(width=width, height=bottom + _MARGIN, title=title, marks=tuple(marks))


def _ends(rows: Sequence[HeadRow]) -> tuple[int, int]:
    """The offsets at the left and at the right; those that no head gives a hundredth are left out.

    Nothing to the right of 0 where no head looks ahead.
    """
    seen = [
        share.offset
        for row in rows
        for plot in row.heads
        for share in (*plot.measured, *plot.weights)
        if share.weight >= 0.01
    ]
    return max([4, *seen]), min([0, *seen])


def _heading(title: str) -> Iterator[Mark]:
    y = _MARGIN + 14
    yield Words(_MARGIN, y, prose(title), "start", "ink", 15)
    y += _TITLE
    yield Bars((Box(_MARGIN, y - 10, 16, 11),), "measured")
    yield Words(_MARGIN + 22, y, "measured", "start", "muted", 12)
    x = _MARGIN + 100
    yield Path(((x, y - 4), (x + 22, y - 4)), "weights", 1.6)
    yield Dot(x + 11, y - 4, 3, "weights")
    words = "from weights, and their offset; the past at the left, heights are square roots"
    yield Words(x + 28, y, words, "start", "muted", 12)


def _plot(plot: HeadPlot, x: float, y: float, far: int, near: int) -> Iterator[Mark]:
    step = _WIDE / (far - near + 1)

    def place(offset: int) -> float:
        return x + (far - offset + 0.5) * step

    def level(weight: float) -> float:
        return y + _HIGH * (1 - sqrt(min(max(weight, 0.0), 1.0)))

    if plot.name:
        yield Words(x + _WIDE / 2, y - 3, prose(plot.name), "middle", "ink", 10)
    yield Bars((Box(place(0) - 0.5, y, 1, _HIGH), Box(x, y + _HIGH, _WIDE, 1)), "rule")
    thick = 0.8 * step
    bars = tuple(
        Box(place(offset) - thick / 2, level(weight), thick, y + _HIGH - level(weight))
        for offset, weight in plot.measured
        if near <= offset <= far and weight > 0
    )
    if bars:
        yield Bars(bars, "measured")
    inside = sorted(share for share in plot.weights if near <= share.offset <= far)
    if inside:
        yield Path(tuple((place(one.offset), level(one.weight)) for one in inside), "weights", 1.4)
    for offset, weight in inside:
        if offset == plot.preferred:
            yield Dot(place(offset), level(weight), 3, "weights")


def _axis(x: float, y: float, far: int, near: int) -> Iterator[Mark]:
    step = _WIDE / (far - near + 1)
    yield Words(x, y, str(far), "start", "muted", 10)
    yield Words(x + (far + 0.5) * step, y, "0", "middle", "muted", 10)
    if near < 0:
        yield Words(x + _WIDE, y, str(-near), "end", "muted", 10)


def _svg(drawn: Sheet) -> str:
    def style(colours: dict[Colour, str], paper: str) -> str:
        filled = (f".{name}{{fill:{colour}}}" for name, colour in colours.items())
        drawn = f"polyline.weights{{fill:none;stroke:{colours['weights']}}}"
        return f".paper{{fill:{paper}}}{''.join(filled)}{drawn}"

    size = f"{drawn.width:.0f} {drawn.height:.0f}"
    across, down = size.split()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{across}" '
        f'height="{down}" font-family="DejaVu Sans, Verdana, sans-serif" role="img">'
        f"<title>{html.escape(prose(drawn.title))}</title><style>{style(_LIGHT, _PAPER)}"
        f"@media {DARK_SCREEN}{{{style(_DARK, _DARK_PAPER)}}}</style>"
        f'<rect class="paper" width="{across}" height="{down}"/>'
        f"{''.join(map(_element, drawn.marks))}</svg>\n"
    )


def _element(mark: Mark) -> str:
    if isinstance(mark, Words):
        return (
            f'<text class="{mark.colour}" x="{mark.x:.1f}" y="{mark.y:.1f}" '
            f'font-size="{mark.size}" text-anchor="{mark.side}">{html.escape(mark.words)}</text>'
        )
    if isinstance(mark, Bars):
        drawn = "".join(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h-{w:.1f}z" for x, y, w, h in mark.boxes)
        return f'<path class="{mark.colour}" d="{drawn}"/>'
    if isinstance(mark, Dot):
        at = f'cx="{mark.x:.1f}" cy="{mark.y:.1f}" r="{mark.radius:g}"'
        return f'<circle class="{mark.colour}" {at}/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in mark.points)
    return f'<polyline class="{mark.colour}" stroke-width="{mark.width:g}" points="{points}"/>'


def _png(drawn: Sheet, scale: float) -> bytes:
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Rectangle

    side = {"start": "left", "middle": "center", "end": "right"}
    with style.context({"text.parse_math": False, "font.family": "sans-serif"}, after_reset=True):
        figure = Figure(figsize=(drawn.width / 72, drawn.height / 72), dpi=72)
        paper = figure.add_axes((0, 0, 1, 1), xlim=(0, drawn.width), ylim=(drawn.height, 0))
        paper.set_axis_off()
        for order, mark in enumerate(drawn.marks):
            colour = _LIGHT[mark.colour]
            if isinstance(mark, Words):
                paper.text(
                    mark.x, mark.y, mark.words, color=colour, fontsize=mark.size, ha=side[mark.side]
                )
            elif isinstance(mark, Path):
                across, down = zip(*mark.points, strict=True)
                paper.plot(across, down, color=colour, linewidth=mark.width, zorder=order)
            elif isinstance(mark, Dot):
                paper.add_patch(
                    Circle((mark.x, mark.y), mark.radius, color=colour, linewidth=0, zorder=order)
                )
            else:
                for x, y, width, height in mark.boxes:
                    box = Rectangle((x, y), width, height, fc=colour, linewidth=0, zorder=order)
                    paper.add_patch(box)
        file = BytesIO()
        figure.savefig(file, format="png", dpi=72 * scale, metadata={"Software": None})
    return file.getvalue()
