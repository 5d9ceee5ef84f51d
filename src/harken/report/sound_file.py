"""The picture of `sound.py` as a file: SVG to print, PNG to send; one drawing for both.

A column of rows that share the axis of time. A point is a pixel of the SVG, and `scale` pixels of
the PNG. The same maps give the same bytes: no date, no version, no chance in the names of parts.
Drawn by matplotlib, which is imported only here and only when a file is asked for. Its one font has
no Chinese or Japanese: they are boxes in the PNG, and text like any other in the SVG.
"""

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from harken.report import palette
from harken.report.axis import label
from harken.report.markup import prose, visible
from harken.report.sound import (
    LINE,
    SOUND_HEIGHT,
    Label,
    Panel,
    SoundMaps,
    TimeAxis,
    arranged,
    enlarged,
    map_panel,
    row_height,
    small_panels,
    sound_panel,
    strip_height,
    time_axis,
    weight_marks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOT, RIGHT, TOP = 900, 30, 8  # pixels: the axis of time, and the margins
_TITLE, _NAME, _SECONDS, _SCALE, _GAP = 24, 32, 32, 36, 5
_TITLE_LETTERS, _SYMBOL_LETTERS = 105, 16  # more are wrapped, or left out
_STRIP = 180  # of the scale of colours
# As page.css has them on light paper.
_INK, _MUTED = "#1b1e23", "#5d6672"
_COLOURS = {"words": "#d9730d", "gold": "#0a8270"}
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 12.0,
    "text.color": _MUTED,
    "text.parse_math": False,  # $ is a symbol like any other
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "harken",
}

Draw = Callable[["Axes"], None]


def sound_svg(maps: SoundMaps, title: str, *, chosen: tuple[int, int] | None = None) -> str:
    """A whole SVG file that needs no other; `chosen` as in `sound_figure`."""
    return _file(maps, title, chosen, "svg", 1.0).decode("utf-8")


def sound_png(
    maps: SoundMaps, title: str, scale: float = 2, *, chosen: tuple[int, int] | None = None
) -> bytes:
    """The same as a PNG, with `scale` pixels for one of the SVG."""
    return _file(maps, title, chosen, "png", scale)


def _file(
    maps: SoundMaps,
    title: str,
    chosen: tuple[int, int] | None,
    kind: Literal["svg", "png"],
    scale: float,
) -> bytes:
    from matplotlib import style
    from matplotlib.figure import Figure

    axis = time_axis(maps)
    rows = _rows(maps, title, chosen, axis)
    left = 24 + 7 * max(8, *(len(_short(raw)) for raw in maps.symbols))
    width, height = left + PLOT + RIGHT, 2 * TOP + sum(height for height, _ in rows)
    # Whatever a reader's own settings are, the picture is the same.
    with style.context(_STYLE, after_reset=True):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        y = TOP
        for size, draw in rows:
            place = (left / width, 1 - (y + size) / height, PLOT / width, size / height)
            axes = figure.add_axes(place, xlim=(axis.begin, axis.end), ylim=(size, 0))
            axes.set_axis_off()
            draw(axes)
            y += size
        file = BytesIO()
        svg = {"Title": prose(title), "Date": None, "Creator": None}
        metadata = svg if kind == "svg" else {"Software": None}
        figure.savefig(file, format=kind, dpi=72 * scale, metadata=metadata)
    return file.getvalue()


def _rows(
    maps: SoundMaps, title: str, chosen: tuple[int, int] | None, axis: TimeAxis
) -> list[tuple[int, Draw]]:
    """Heights in pixels and what is drawn, from top to bottom."""
    name, weights = enlarged(maps, chosen)
    row, strip = row_height(len(maps.symbols)), strip_height(maps)
    seconds: tuple[int, Draw] = (_SECONDS, partial(_seconds, axis))
    rows: list[tuple[int, Draw]] = [
        (_TITLE, partial(_heading, line, _INK, 15)) for line in wrap(prose(title), _TITLE_LETTERS)
    ]
    for kind, words in (("words", maps.words), ("gold", maps.gold)):
        if words:
            placed = arranged(words, axis, PLOT)
            lines = 1 + max(one.line for one in placed)
            rows.append((LINE * lines + _GAP, partial(_lane, kind, placed)))
    rows += [
        (SOUND_HEIGHT, partial(_window, sound_panel(maps), ["sound"], maps)),
        (_NAME, partial(_heading, name, _INK, 12)),
        (
            row * len(maps.symbols),
            partial(_window, map_panel(maps, name, weights), maps.symbols, maps),
        ),
        seconds,
        (_SCALE, partial(_scale, maps.strongest, axis)),
    ]
    small = small_panels(maps)
    for layer, panels in small:
        rows.append((_NAME, partial(_heading, layer, _MUTED, 12)))
        rows += [(strip + _GAP, partial(_window, panel, [panel.head], None)) for panel in panels]
    return rows + [seconds] * bool(small)


def _short(raw: str) -> str:
    shown = visible(raw)
    return shown if len(shown) <= _SYMBOL_LETTERS else shown[: _SYMBOL_LETTERS - 1] + "…"


def _colours(weights: NDArray[np.floating]) -> NDArray[np.uint8]:
    levels = np.rint(palette.strength(weights) * (palette.LEVELS - 1)).astype(int)
    colours: NDArray[np.uint8] = palette.scale(palette.LIGHT)[levels]
    return colours


def _heading(words: str, colour: str, size: int, axes: "Axes") -> None:
    axes.text(0, 0.3, prose(words), transform=axes.transAxes, color=colour, fontsize=size)


def _side(words: str, middle: float, axes: "Axes") -> None:
    """Left of the plot; letters stand on one line whether they reach below it or not."""
    axes.text(-8 / PLOT, middle + 4, words, transform=axes.get_yaxis_transform(), ha="right")


def _window(panel: Panel, names: Sequence[str], maps: SoundMaps | None, axes: "Axes") -> None:
    """A picture with names on its left, and thin lines where the words of `maps` begin and end."""
    # A strip leaves a gap below it.
    height = axes.get_ylim()[0] - (_GAP if maps is None else 0)
    axes.imshow(
        _colours(panel.weights),
        extent=(panel.begin, panel.end, height, 0),
        aspect="auto",
        interpolation="none",
    )
    for i, raw in enumerate(names):
        _side(_short(raw), (i + 0.5) * height / len(names), axes)
    marked = () if maps is None else (("words", maps.words), ("gold", maps.gold))
    for kind, words in marked:
        dashes = "solid" if kind == "words" else "dashed"
        for second in sorted({second for word in words for second in (word.start, word.end)}):
            axes.axvline(second, color=_COLOURS[kind], linewidth=1, linestyle=dashes, alpha=0.6)


def _lane(kind: str, placed: Sequence[Label], axes: "Axes") -> None:
    height = axes.get_ylim()[0] - _GAP
    _side(kind, height / 2, axes)
    for one in placed:
        spoken, y = one.spoken, height - LINE * one.line
        axes.hlines(y - 2, spoken.start, spoken.end, color=_COLOURS[kind], linewidth=2)
        at, side = (spoken.end, "right") if one.flipped else (spoken.start, "left")
        axes.text(at, y - 6, visible(spoken.word), ha=side, color=_INK)


def _seconds(axis: TimeAxis, axes: "Axes") -> None:
    marks = axis.marks()
    axes.hlines(4, axis.begin, axis.end, color=_MUTED, linewidth=1)
    axes.vlines(marks, 4, 9, color=_MUTED, linewidth=1)
    for mark in marks:
        axes.text(mark, 22, label(mark), ha="center")
    _side("seconds", 18, axes)


def _scale(strongest: float, axis: TimeAxis, axes: "Axes") -> None:
    end = axis.begin + (axis.end - axis.begin) * _STRIP / PLOT
    # Even steps of colour are squares of weights.
    steps = np.square(np.linspace(0, 1, 128))[None]
    axes.imshow(
        _colours(steps), extent=(axis.begin, end, 16, 6), aspect="auto", interpolation="none"
    )
    _side("weight", 11, axes)
    for weight, share in weight_marks(strongest):
        axes.text(axis.begin + share * (end - axis.begin), 29, weight, ha="center")
