"""The pictures of `picture.py` as one sheet in a file: SVG to print, PNG to send.

A column is a word; a row is the mean of a layer, or one of its heads. A long caption goes on in
another band of rows below. A point is a pixel of the SVG, and `scale` pixels of the PNG. The same
maps give the same bytes: no date, no version, no chance in the names of parts. Drawn by matplotlib,
which is imported only when a file is asked for. Its one font has no Chinese or Japanese: they are
boxes in the PNG, and text like any other in the SVG.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harken.errors import UserError
from harken.files import replacing
from harken.formats.examples import Box
from harken.report import palette
from harken.report.heatmap import Weights
from harken.report.markup import prose, visible
from harken.report.picture import (
    Choice,
    PictureMaps,
    choices,
    peak,
    ring,
    shares,
    shrunk,
    two_figures,
    veil,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

SIDE = 120  # pixels of a picture's longer side
BAND = 10  # words before a caption goes on below
_MARGIN, _GAP, _TITLE, _NAME, _WORD, _WEIGHT = 16, 10, 24, 20, 24, 24
_LETTER, _TITLE_LETTER = 7.0, 8.5  # about the width of one
# As page.css and picture.css have them on light paper.
_INK, _MUTED, _HALO, _PEAK, _GOLD = "#1b1e23", "#5d6672", "#0f1420", "#ffffff", "#ffd54a"
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 12.0,
    "text.color": _MUTED,
    "text.parse_math": False,  # $ is a symbol like any other
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "harken",
}

Kind = Literal["svg", "png"]


def write_picture(
    maps: PictureMaps, path: Path, *, title: str = "", layer: int | None = None
) -> None:
    """SVG or PNG, as the name of `path` ends; of the last layer, or of one counted from 0."""
    ending = path.suffix.lower()
    if ending not in (".svg", ".png"):
        raise UserError(
            f"{path}: found the ending {path.suffix!r}, wanted .svg or .png",
            fix="name the picture after the kind of file that it shall be",
        )
    if ending == ".svg":
        file = picture_svg(maps, title, layer=layer).encode("utf-8")
    else:
        file = picture_png(maps, title, layer=layer)
    with replacing(path) as unfinished:
        unfinished.write_bytes(file)


def picture_svg(maps: PictureMaps, title: str, *, layer: int | None = None) -> str:
    """A whole SVG file that needs no other."""
    return _file(maps, title, layer, "svg", 1.0).decode("utf-8")


def picture_png(
    maps: PictureMaps, title: str, scale: float = 2, *, layer: int | None = None
) -> bytes:
    """The same as a PNG, with `scale` pixels for one of the SVG."""
    return _file(maps, title, layer, "png", scale)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sheet:
    """Where things stand, in pixels from the upper left corner."""

    title: list[str]  # lines
    left: float  # of the first column; the names of rows are left of it
    wide: float  # of one picture
    high: float
    columns: int
    looks: int  # rows of a band
    bands: int

    @property
    def width(self) -> float:
        return self.left + self.columns * (self.wide + _GAP) - _GAP + _MARGIN

    @property
    def height(self) -> float:
        return self.corner(self.bands, 0, 0)[1] - _WORD

    def corner(self, band: int, look: int, column: int) -> tuple[float, float]:
        """Of one picture."""
        row = self.high + _WEIGHT
        top = _MARGIN + _TITLE * len(self.title) + _NAME
        y = top + band * (_WORD + self.looks * row + _GAP) + _WORD + look * row
        return self.left + column * (self.wide + _GAP), y


def _sheet(maps: PictureMaps, looks: Sequence[Choice], title: str) -> _Sheet:
    larger = max(maps.frame.width, maps.frame.height)
    untitled = _Sheet(
        title=[],
        left=_MARGIN + _GAP + _LETTER * max(len(one.name) for one in looks),
        wide=SIDE * maps.frame.width / larger,
        high=SIDE * maps.frame.height / larger,
        columns=min(len(maps.symbols), BAND) + (maps.image is not None),
        looks=len(looks),
        bands=math.ceil(len(maps.symbols) / BAND),
    )
    letters = int((untitled.width - 2 * _MARGIN) / _TITLE_LETTER)
    return replace(untitled, title=wrap(prose(title), letters))


class _Drawing(NamedTuple):
    """What every part of the sheet needs."""

    maps: PictureMaps
    image: NDArray[np.uint8] | None  # no larger than it is drawn
    smooth: Literal["none", "bilinear"]
    sheet: _Sheet
    paper: "Axes"  # the whole sheet, in its pixels


def _file(maps: PictureMaps, title: str, layer: int | None, kind: Kind, scale: float) -> bytes:
    from matplotlib import style
    from matplotlib.figure import Figure

    layer = len(maps.layers) - 1 if layer is None else layer
    looks = choices(maps, layer)
    sheet = _sheet(maps, looks, title)
    # Whatever a reader's own settings are, the picture is the same.
    with style.context(_STYLE, after_reset=True):
        figure = Figure(figsize=(sheet.width / 72, sheet.height / 72), dpi=72)
        paper = figure.add_axes((0, 0, 1, 1), xlim=(0, sheet.width), ylim=(sheet.height, 0))
        paper.set_axis_off()
        drawing = _Drawing(
            maps=maps,
            image=None if maps.image is None else shrunk(maps.image, 2 * SIDE),
            smooth="none" if kind == "svg" else "bilinear",  # who reads an SVG may enlarge it
            sheet=sheet,
            paper=paper,
        )
        _heading(drawing, maps.attention().layer_name(layer))
        for band in range(sheet.bands):
            _band(drawing, looks, band)
        file = BytesIO()
        svg = {"Title": prose(title), "Date": None, "Creator": None}
        metadata = svg if kind == "svg" else {"Software": None}
        figure.savefig(file, format=kind, dpi=72 * scale, metadata=metadata)
    return file.getvalue()


def _heading(drawing: _Drawing, name: str) -> None:
    lines, paper = drawing.sheet.title, drawing.paper
    for i, line in enumerate(lines):
        paper.text(_MARGIN, _MARGIN + 15 + i * _TITLE, line, color=_INK, fontsize=15)
    paper.text(_MARGIN, _MARGIN + 12 + len(lines) * _TITLE, prose(name))


def _band(drawing: _Drawing, looks: Sequence[Choice], band: int) -> None:
    """Up to `BAND` words: their names on top, and below a row for each look."""
    maps, _, _, sheet, paper = drawing
    for row, (name, weights) in enumerate(looks):
        x, y = sheet.corner(band, row, 0)
        paper.text(x - _GAP, y + sheet.high / 2 + 4, prose(name), ha="right")
        if maps.image is not None:
            _lay_image(drawing, _axes(drawing, x, y))
            _below(drawing, x, y, "the picture")
        for symbol in range(len(maps.symbols))[band * BAND : (band + 1) * BAND]:
            x, y = sheet.corner(band, row, symbol % BAND + (maps.image is not None))
            _scene(drawing, symbol, weights[symbol], _axes(drawing, x, y))
            _below(drawing, x, y, two_figures(float(weights[symbol].max())))
            if row == 0:
                paper.text(x, y - 7, _short(maps.symbols[symbol], sheet.wide), color=_INK)


def _below(drawing: _Drawing, x: float, y: float, words: str) -> None:
    drawing.paper.text(x, y + drawing.sheet.high + 13, words, fontsize=10)


def _short(raw: str, width: float) -> str:
    shown, most = visible(raw), max(2, int(width / _LETTER))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _axes(drawing: _Drawing, x: float, y: float) -> "Axes":
    """Room for one picture; they count its pixels."""
    frame, sheet = drawing.maps.frame, drawing.sheet
    left, bottom = x / sheet.width, 1 - (y + sheet.high) / sheet.height
    figure = drawing.paper.get_figure(root=True)
    assert figure is not None
    axes = figure.add_axes(
        (left, bottom, sheet.wide / sheet.width, sheet.high / sheet.height),
        xlim=(frame.x, frame.x + frame.width),
        ylim=(frame.y + frame.height, frame.y),
        autoscale_on=False,
    )
    axes.set_axis_off()
    return axes


def _scene(drawing: _Drawing, symbol: int, weights: Weights, axes: "Axes") -> None:
    """One word's picture."""
    from matplotlib.patches import Circle, Rectangle

    maps = drawing.maps
    if maps.image is None:
        levels = np.rint(palette.strength(shares(maps, weights)) * (palette.LEVELS - 1))
        _lay(palette.scale(palette.LIGHT)[levels.astype(int)], maps.covered, axes)
    else:
        _lay_image(drawing, axes)
        _lay(*veil(maps, weights), axes)
    if (box := maps.box(symbol)) is not None:
        _mark(axes, partial(Rectangle, (box.x, box.y), box.width, box.height), _GOLD)
    if (place := peak(weights)) is not None:
        _mark(axes, partial(Circle, maps.centre(place), ring(maps)), _PEAK)


def _mark(axes: "Axes", shape: "Callable[..., Patch]", colour: str) -> None:
    """Drawn twice: a dark line is seen on light ground, a light one on dark."""
    for edge, width in ((_HALO, 3.0), (colour, 1.3)):
        axes.add_patch(shape(fill=False, edgecolor=edge, linewidth=width, clip_on=False))


def _lay_image(drawing: _Drawing, axes: "Axes") -> None:
    assert drawing.image is not None
    _lay(drawing.image, drawing.maps.frame, axes, drawing.smooth)


def _lay(
    pixels: NDArray[np.uint8],
    box: Box,
    axes: "Axes",
    interpolation: Literal["none", "bilinear"] = "none",
) -> None:
    extent = box.x, box.x + box.width, box.y + box.height, box.y
    laid = axes.imshow(pixels, extent=extent, aspect="auto", interpolation=interpolation)
    # Equal pictures would else have equal names in the SVG.
    laid.set_gid(f"image-{len(axes.figure.axes)}-{len(axes.images)}")
