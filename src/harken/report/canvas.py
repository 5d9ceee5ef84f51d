"""Figures as SVG and PNG files: marks at pixels from the upper left corner, drawn by matplotlib.

The SVG keeps text as text, and its style sheet replaces light colors by dark ones in a dark theme.
The same marks give the same bytes. matplotlib is imported only when a file is written.
"""

import re
import unicodedata
import warnings
from collections.abc import Sequence
from functools import cache, partial
from html import escape
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harken.errors import UserError
from harken.files import replacing
from harken.report.markup import prose
from harken.report.palette import DARK, DARK_SCREEN, LEGEND, LIGHT, Weights, levels, scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Color = Literal[
    "background", "text", "muted", "rule", "accent", "bar", "highlight", "word", "halo", "peak"
]
# Light and dark. The style sheet finds a color by its light value, so these are distinct.
_COLORS: dict[Color, tuple[str, str]] = {
    "background": ("#ffffff", "#14171c"),
    "text": ("#1b1e23", "#e4e6e8"),
    "muted": ("#5d6672", "#9aa3af"),
    "rule": ("#c9ced4", "#3b434e"),
    "accent": ("#1d5fa6", "#82b7ee"),
    "bar": ("#8db8d8", "#3d6f97"),
    "highlight": ("#c2410c", "#ffb070"),
    "word": ("#d9730d", "#f0a04b"),
    "halo": ("#0f1420", "#0f1420"),
    "peak": ("#fefefe", "#fefefe"),
}
_RULES = "".join(
    f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
    for light, dark in _COLORS.values()
    for part in ("fill", "stroke")
    if light != dark
)
_STYLE = (
    f'[id^="dark"]{{display:none}}@media {DARK_SCREEN}{{'
    f'[id^="light"]{{display:none}}[id^="dark"]{{display:inline}}{_RULES}}}'
)
_FONTS = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic",
    "Arial Unicode MS", "PingFang SC", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic",
)  # fmt: skip
_LETTER = 7.0  # approximate pixels of a Latin letter of size 12
MARGIN, LINE, TITLE_LINE, _LEGEND_WIDTH = 20, 18, 22, 180  # pixels


class Label(NamedTuple):
    """Text whose baseline is y; rotated text reads upwards."""

    x: float
    y: float
    text: str
    color: Color = "muted"
    anchor: Literal["start", "middle", "end"] = "start"
    size: int = 12
    rotated: bool = False


class Heatmap(NamedTuple):
    """Weights [rows, columns] on the color scale of `palette.py`."""

    x: float
    y: float
    width: float
    height: float
    weights: Weights


class Picture(NamedTuple):
    """Pixels [Y, X, 3], the same in both themes."""

    x: float
    y: float
    width: float
    height: float
    pixels: NDArray[np.uint8]


class Polyline(NamedTuple):
    """A line through points."""

    points: Sequence[tuple[float, float]]
    color: Color = "muted"
    width: float = 1.0
    opacity: float = 1.0


class Bars(NamedTuple):
    """Filled rectangles (x, y, width, height)."""

    boxes: Sequence[tuple[float, float, float, float]]
    color: Color


class Circle(NamedTuple):
    """A disk, or a ring if it has a line width."""

    x: float
    y: float
    radius: float
    color: Color
    line_width: float = 0.0


Mark = Label | Heatmap | Picture | Polyline | Bars | Circle


class Drawing(NamedTuple):
    """Marks in drawing order; `description` is the alternative text."""

    width: float
    height: float
    title: str
    marks: Sequence[Mark]
    description: str = ""

    def svg(self) -> bytes:
        file = _save(self, "svg", 1.0).decode("utf-8")
        tag, _, content = file[file.index("<svg") :].partition(">")
        tag = re.sub(r'="([\d.]+)pt"', r'="\1"', tag)  # a unit is a pixel
        title, description = escape(prose(self.title)), escape(prose(self.description))
        text = f"<title>{title}</title><desc>{description}</desc>"
        return f'{tag} role="img">{text}<style>{_STYLE}</style>{content}'.encode()

    def png(self, scale: float = 2) -> bytes:
        """Return a PNG file with `scale` pixels per unit, in light colors."""
        return _save(self, "png", scale)

    def write(self, path: Path) -> None:
        """Write SVG or PNG, depending on the suffix of `path`."""
        check_suffix(path)
        content = self.svg() if path.suffix.lower() == ".svg" else self.png()
        with replacing(path) as unfinished:
            unfinished.write_bytes(content)


def check_suffix(path: Path) -> None:
    """Raise unless the file name ends in .svg or .png."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise UserError(
            f"{path}: unknown image format (expected .svg or .png, got {path.suffix!r})",
            fix="change the suffix of the file name",
        )


def heading(title: str, notes: Sequence[str], x: float, width: float) -> list[Label]:
    """Return the title at the left margin, and notes below it at x; the first one is darker."""
    split = partial(wrap, max_lines=3, placeholder=" …")
    titles = split(prose(title), int((width - 2 * MARGIN) / 8.5))
    labels = [
        Label(MARGIN, MARGIN + 15 + i * TITLE_LINE, line, "text", size=15)
        for i, line in enumerate(titles)
    ]
    y = MARGIN + len(titles) * TITLE_LINE
    for i, note in enumerate(notes):
        for line in split(prose(note), int((width - x - MARGIN) / 6.5)):
            y += LINE
            labels.append(Label(x, y, line, "muted" if i else "text"))
    return labels


def legend(x: float, y: float, ticks: Sequence[tuple[str, float]]) -> list[Mark]:
    """Return the color scale with labels at positions from 0 to 1."""
    return [
        Heatmap(x, y, _LEGEND_WIDTH, 10, LEGEND),
        Label(x - 6, y + 9, "weight", anchor="end"),
        *(Label(x + _LEGEND_WIDTH * share, y + 25, text, anchor="middle") for text, share in ticks),
    ]


def text_width(text: str) -> float:
    """Return the approximate width of a label in pixels."""
    return _LETTER * sum(map(_columns, text))


def short(text: str, columns: int = 16) -> str:
    """Truncate to a number of columns (see `_columns`) and to four times as many characters."""
    if sum(map(_columns, text)) <= columns and len(text) <= 4 * columns:
        return text
    ends = accumulate(map(_columns, text[: 4 * columns]))
    return text[: sum(end < columns for end in ends)] + "…"


def _columns(character: str) -> int:
    """Return 0 for a combining mark, 2 for a wide character such as a Chinese one, else 1."""
    if unicodedata.category(character).startswith("M"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@cache
def _installed_fonts() -> list[str]:
    from matplotlib.font_manager import get_font_names

    return [name for name in _FONTS if name in get_font_names()]


def escape_missing_glyphs(text: str) -> str:
    """Replace each character that no installed font has by its Python escape, for PNG files."""
    from matplotlib.font_manager import findfont, get_font

    fonts = [get_font(findfont(name)) for name in _installed_fonts()]
    return "".join(
        character
        if character.isspace() or any(font.get_char_index(ord(character)) for font in fonts)
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _save(drawing: Drawing, kind: Literal["svg", "png"], scale: float) -> bytes:
    from matplotlib import style
    from matplotlib.figure import Figure

    settings = {
        "font.family": _installed_fonts() if kind == "png" else "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "harken",
        "image.composite_image": False,
    }
    width, height = round(drawing.width), round(drawing.height)
    # In an SVG, the light image covers the dark one unless the style sheet hides it.
    themes = (("dark", DARK), ("light", LIGHT))
    with style.context(settings, after_reset=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the reader of an SVG may have the glyphs
        figure = Figure(
            figsize=(width / 72, height / 72), dpi=72, facecolor=_COLORS["background"][0]
        )
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        for order, mark in enumerate(drawing.marks):
            _draw(axes, mark, order, themes[kind == "png" :])
        axes.set(xlim=(0, width), ylim=(height, 0))
        file = BytesIO()
        unset = ("Date", "Creator", "Format", "Type") if kind == "svg" else ("Software",)
        figure.savefig(file, format=kind, dpi=72 * scale, metadata=dict.fromkeys(unset))
    return file.getvalue()


def _draw(
    axes: "Axes", mark: Mark, order: int, themes: Sequence[tuple[str, Sequence[str]]]
) -> None:
    from matplotlib import patches
    from matplotlib.path import Path as Outline

    match mark:
        case Label(x, y, text, color, anchor, size, rotated):
            drawn = axes.text(x, y, text, color=_COLORS[color][0], fontsize=size, zorder=order)
            drawn.set(ha={"start": "left", "middle": "center", "end": "right"}[anchor])
            drawn.set(rotation=90 if rotated else 0, rotation_mode="anchor")
        case Heatmap(x, y, width, height, weights):
            for theme, anchors in themes:
                pixels = scale(anchors)[levels(weights)]
                _place(axes, Picture(x, y, width, height, pixels), theme, order)
        case Picture():
            _place(axes, mark, "picture", order)
        case Polyline(points, color, width, opacity):
            line = axes.plot(*np.round(points, 2).T, color=_COLORS[color][0], lw=width)[0]
            line.set(alpha=opacity, zorder=order, clip_on=False)
        case Bars(boxes, color):
            left, top, wide, high = np.transpose(boxes)
            across = (left, left + wide, left + wide, left, left)
            down = (top, top, top + high, top + high, top)
            corners = np.round(np.stack((across, down)).T.reshape(-1, 2), 2)
            codes = [Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY] * len(boxes)
            bars = patches.PathPatch(Outline(corners, codes), fc=_COLORS[color][0], lw=0)
            axes.add_patch(bars).set(zorder=order, clip_on=False)
        case Circle(x, y, radius, color, line_width):
            style = {"color": _COLORS[color][0], "fill": not line_width, "lw": line_width}
            disk = patches.Circle((x, y), radius, **style)
            axes.add_patch(disk).set(zorder=order, clip_on=False)


def _place(axes: "Axes", picture: Picture, name: str, order: int) -> None:
    extent = (picture.x, picture.x + picture.width, picture.y + picture.height, picture.y)
    image = axes.imshow(picture.pixels, extent=extent, aspect="auto", interpolation="none")
    image.set(gid=f"{name}-{order}", zorder=order)
