"""SVG and PNG figures: marks at pixels from the upper left corner, drawn with matplotlib.

An SVG contains text as text, and its style sheet switches to dark colors in a dark theme. The bytes
of a file are deterministic. matplotlib is imported only when a file is written.
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
from harken.report import palette
from harken.report.markup import visible_text
from harken.report.palette import DARK, DARK_SCREEN, LEGEND, LIGHT, Weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Color = Literal[
    "background", "text", "muted", "rule", "accent", "bar", "highlight", "word", "halo", "peak"
]
# Light and dark. The style sheet selects by the light color, so light colors are distinct.
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
    f'[style*="{key}: {light}"]{{{key}:{dark}!important}}'
    for light, dark in _COLORS.values()
    for key in ("fill", "stroke")
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
_TITLE_WRAP, _NOTE_WRAP = 8.5, 6.5  # pixels per letter in lines of size 15 and 12
MARGIN, LINE, TITLE_LINE, _LEGEND_WIDTH = 20, 18, 22, 180  # pixels


class Label(NamedTuple):
    """Text with its baseline at y; rotated text reads upwards."""

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
    """A disk, or a ring if `line_width` is positive."""

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
        tag = re.sub(r'="([\d.]+)pt"', r'="\1"', tag)  # one unit per pixel
        title, description = map(escape, map(visible_text, (self.title, self.description)))
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
    """Return the title at the left margin, and notes below it at x; the first note is darker."""
    split = partial(wrap, max_lines=3, placeholder=" …")
    titles = split(visible_text(title), int((width - 2 * MARGIN) / _TITLE_WRAP))
    labels = [
        Label(MARGIN, MARGIN + 15 + i * TITLE_LINE, line, "text", size=15)
        for i, line in enumerate(titles)
    ]
    y = MARGIN + len(titles) * TITLE_LINE
    for i, note in enumerate(notes):
        for line in split(visible_text(note), int((width - x - MARGIN) / _NOTE_WRAP)):
            y += LINE
            labels.append(Label(x, y, line, "muted" if i else "text"))
    return labels


def legend(x: float, y: float, ticks: Sequence[tuple[str, float]]) -> list[Mark]:
    """Return the color scale with labels at positions from 0 to 1."""
    return [
        Heatmap(x, y, _LEGEND_WIDTH, 10, LEGEND),
        Label(x - 6, y + 9, "weight", anchor="end"),
        *(Label(x + _LEGEND_WIDTH * tick, y + 25, text, anchor="middle") for text, tick in ticks),
    ]


def text_width(text: str) -> float:
    """Return the approximate width of a label in pixels."""
    return _LETTER * sum(map(_display_width, text))


def shorten(text: str, width: int = 16) -> str:
    """Truncate text to a display width, with “…” at the end.

    The number of characters is limited too, since combining marks have no width.
    """
    if sum(map(_display_width, text)) <= width and len(text) <= 4 * width:
        return text
    ends = accumulate(map(_display_width, text[: 4 * width]))
    kept = sum(end < width for end in ends)  # characters that leave space for “…”
    return text[:kept] + "…"


def _display_width(character: str) -> int:
    """Return 0 for a combining mark, 2 for a wide character such as Chinese, else 1."""
    if unicodedata.category(character).startswith("M"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@cache
def _installed_fonts() -> list[str]:
    from matplotlib.font_manager import get_font_names

    return [name for name in _FONTS if name in get_font_names()]


def escape_missing_glyphs(text: str) -> str:
    """Replace characters that no installed font has by Python escapes, for PNG files."""
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
    # In an SVG, the light image covers the dark image unless the style sheet hides it.
    light, dark = ("light", LIGHT), ("dark", DARK)
    themes = [light] if kind == "png" else [dark, light]
    with style.context(settings, after_reset=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fonts of the viewer may have the glyphs
        figure = Figure(
            figsize=(width / 72, height / 72), dpi=72, facecolor=_COLORS["background"][0]
        )
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        for order, mark in enumerate(drawing.marks):
            _draw(axes, mark, order, themes)
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
                pixels = palette.color_scale(anchors)[palette.color_levels(weights)]
                _draw_picture(axes, Picture(x, y, width, height, pixels), theme, order)
        case Picture():
            _draw_picture(axes, mark, "picture", order)
        case Polyline(points, color, width, opacity):
            line = axes.plot(*np.round(points, 2).T, color=_COLORS[color][0], lw=width)[0]
            line.set(alpha=opacity, zorder=order, clip_on=False)
        case Bars(boxes, color):
            # One path of all bars, with five points per bar, of which the last is the first.
            left, top, wide, high = np.transpose(boxes)
            x_corners = (left, left + wide, left + wide, left, left)
            y_corners = (top, top, top + high, top + high, top)
            corners = np.round(np.stack((x_corners, y_corners)).T.reshape(-1, 2), 2)
            codes = [Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY] * len(boxes)
            bars = patches.PathPatch(Outline(corners, codes), fc=_COLORS[color][0], lw=0)
            axes.add_patch(bars).set(zorder=order, clip_on=False)
        case Circle(x, y, radius, color, line_width):
            style = {"color": _COLORS[color][0], "fill": not line_width, "lw": line_width}
            disk = patches.Circle((x, y), radius, **style)
            axes.add_patch(disk).set(zorder=order, clip_on=False)


def _draw_picture(axes: "Axes", picture: Picture, name: str, order: int) -> None:
    extent = (picture.x, picture.x + picture.width, picture.y + picture.height, picture.y)
    image = axes.imshow(picture.pixels, extent=extent, aspect="auto", interpolation="none")
    image.set(gid=f"{name}-{order}", zorder=order)
