"""The pictures of `heatmap.py` and `attention_lines.py` as files: SVG to print, PNG to send.

A sheet has one head large and below it all heads of all layers small. What is drawn is a list of
marks in pixels; two writers put them on paper. The SVG follows the reader's theme, its text stays
text, and it needs no other file. The PNG is drawn by matplotlib, which is imported only then, with
the fonts of the machine: a letter that none of them has is written as Python writes it, \\u4e2d.
The same maps give the same bytes.
"""

import html
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from textwrap import wrap
from typing import Literal

import numpy as np

from harken.report import palette
from harken.report.attention_lines import Link, links, short, width_of
from harken.report.heatmap import AttentionMaps, Weights, condensed, in_blocks, sharpest
from harken.report.markup import prose, visible

_MARGIN, _GAP, _LINE, _TITLE, _SIZE = 20, 6, 18, 22, 12
_LARGE, _CELL = 640, 28  # pixels: the large map, and a token of it at most
_NAMED = 64  # tokens: as many are all named, be the map larger for it
_PITCH = 14  # from one label to the next at least
_SQUARES = 320  # along the large map: two pixels each
_SMALL, _LEAST = 112, 28  # pixels of a small map
_ROW = 640  # of small maps, as long as they are not too small then
_SMALL_CELLS = 500_000  # of all small maps, so that a sheet stays small
_BLOCKS, _APART = 128, 320  # lines: tokens in a column, and the room between the columns
_STRIP = 180  # the scale of colours
# As page.css has them on light paper and on dark.
_INK, _MUTED, _PAPER, _ACCENT = "#1b1e23", "#5d6672", "#ffffff", "#1d5fa6"
_STYLE = (
    f"image{{image-rendering:pixelated}}@media {palette.DARK_SCREEN}"
    "{.paper{fill:#14171c}.ink{fill:#e4e6e8}.muted{fill:#9aa3af}.light{display:none}"
    "line{stroke:#82b7ee}}"
)
_FAMILIES = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic",
    "Arial Unicode MS", "PingFang SC", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic",
)  # fmt: skip
_NO_XML = re.compile("[\ufffe\uffff]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """Text that stands on y, before, around or behind x; `turned` reads upwards."""

    x: float
    y: float
    words: str
    side: Literal["start", "middle", "end"] = "start"
    ink: bool = False  # else it is muted
    size: int = _SIZE
    turned: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Map:
    """Weights [rows, columns] as squares."""

    x: float
    y: float
    width: float
    height: float
    weights: Weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """As strong as its link."""

    start: tuple[float, float]
    end: tuple[float, float]
    link: Link


Mark = Words | Map | Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """Marks on paper, in pixels from the upper left corner."""

    width: float
    height: float
    title: str
    said: str  # the picture in words
    marks: tuple[Mark, ...]


def attention_svg(maps: AttentionMaps, title: str) -> str:
    """The sheet as a whole SVG file."""
    return _svg(sheet(maps, title))


def attention_png(maps: AttentionMaps, title: str, scale: float = 2) -> bytes:
    """The sheet as a PNG, with `scale` pixels for one of the SVG."""
    return _png(sheet(*_writable(maps, title)), scale)


def lines_svg(maps: AttentionMaps, title: str, layer: int, head: int) -> str:
    """The lines of one head, counted from 0, as a whole SVG file."""
    return _svg(lines(maps, title, layer, head))


def lines_png(maps: AttentionMaps, title: str, layer: int, head: int, scale: float = 2) -> bytes:
    """The same as a PNG."""
    return _png(lines(*_writable(maps, title), layer, head), scale)


def sheet(maps: AttentionMaps, title: str) -> Drawing:
    """The sharpest head large, and all heads small."""
    layer, head = sharpest(maps)
    weights = maps.layers[layer][head]
    row, column = map(_cell, weights.shape)
    high, wide = row * len(maps.query_tokens), column * len(maps.key_tokens)
    queries, keys = _labels(maps.query_tokens, row), _labels(maps.key_tokens, column)
    names = [prose(maps.layer_name(i)) for i in range(len(maps.layers))]
    beside = [*queries.values(), *map(short, names), "weight"]
    left = _MARGIN + _GAP + max(map(width_of, beside))
    most = len(maps.columns)
    small = min(_SMALL, max(_LEAST, _ROW / most - _GAP))
    width = left + max(wide, most * (small + _GAP), _LARGE / 2) + _MARGIN
    name = prose(maps.head_label(layer, head))
    header = _header(title, [name, *_remarks(maps, len(queries), len(keys))], left, width)
    marks: list[Mark] = [*header]
    y = header[-1].y + 2 * _GAP + max(map(width_of, keys.values()))
    for i, words in keys.items():
        marks.append(Words(x=left + (i + 0.5) * column + 4, y=y, words=words, turned=True))
    y += 2 * _GAP  # else the first labels of both axes touch
    for i, words in queries.items():
        marks.append(Words(x=left - _GAP, y=y + (i + 0.5) * row + 4, words=words, side="end"))
    shown = palette.peaks(weights, _SQUARES)
    marks.append(Map(x=left, y=y, width=wide, height=high, weights=shown))
    y += high + _LINE
    marks += _legend(left, y)
    smalls = list(_smalls(maps, names, small, left, y + 3 * _LINE))
    bottom = max(mark.y + mark.height for mark in smalls if isinstance(mark, Map))
    return Drawing(
        width=width,
        height=bottom + _MARGIN,
        title=title,
        said=f"{name}: {_strongest(maps, weights)}",
        marks=(*marks, *smalls),
    )


def lines(maps: AttentionMaps, title: str, layer: int, head: int) -> Drawing:
    """Queries on the left, keys on the right."""
    if not (0 <= layer < len(maps.layers) and 0 <= head < len(maps.layers[layer])):
        raise ValueError(f"no head {head} in layer {layer}")
    one = [maps.layers[layer][head : head + 1]]
    alone = replace(maps, layers=one, layer_names=(), head_numbers=())
    shown = condensed(alone, _BLOCKS)
    found = links(shown.layers[0][0])
    queries = [short(visible(raw)) for raw in shown.query_tokens]
    keys = [short(visible(raw)) for raw in shown.key_tokens]
    left = _MARGIN + _GAP + max(map(width_of, queries))
    right = left + _APART
    width = right + _GAP + max(map(width_of, keys)) + _MARGIN
    name = prose(maps.head_label(layer, head))
    remarks = [name, found.sentence]
    if len(queries) < len(maps.query_tokens) or len(keys) < len(maps.key_tokens):
        remarks.append(in_blocks(maps, _BLOCKS).replace("square", "line"))
    header = _header(title, remarks, _MARGIN, width)
    marks: list[Mark] = [*header]
    top = header[-1].y + _LINE

    def at(place: int) -> float:
        return top + (place + 0.5) * _LINE

    marks += [
        Line(start=(left, at(one.query)), end=(right, at(one.key)), link=one) for one in found.drawn
    ]
    for i, words in enumerate(queries):
        marks.append(Words(x=left - _GAP, y=at(i) + 4, words=words, side="end", ink=True))
    for i, words in enumerate(keys):
        marks.append(Words(x=right + _GAP, y=at(i) + 4, words=words, ink=True))
    return Drawing(
        width=width,
        height=top + _LINE * max(len(queries), len(keys)) + _MARGIN,
        title=title,
        said=f"{name}: {_strongest(maps, maps.layers[layer][head])}",
        marks=tuple(marks),
    )


def _header(title: str, remarks: Sequence[str], x: float, width: float) -> list[Words]:
    """The title, and below it, from x on, a name in ink and what else is to be said."""
    room, rest = int((width - 2 * _MARGIN) / 8.5), int((width - x - _MARGIN) / 6.5)
    titles = wrap(prose(title), room, max_lines=3, placeholder=" …")
    found = [
        Words(x=_MARGIN, y=_MARGIN + 15 + i * _TITLE, words=line, ink=True, size=15)
        for i, line in enumerate(titles)
    ]
    y = _MARGIN + _TITLE * len(titles)
    for i, remark in enumerate(remarks):
        for line in wrap(remark, rest, max_lines=3, placeholder=" …"):
            y += _LINE
            found.append(Words(x=x, y=y, words=line, ink=i == 0))
    return found


def _remarks(maps: AttentionMaps, queries: int, keys: int) -> Iterator[str]:
    yield "each row looks at the columns"
    longest = max(len(maps.query_tokens), len(maps.key_tokens))
    if longest > _SQUARES:
        yield in_blocks(maps, _SQUARES)
    if longest > _small_squares(maps):
        yield "Small maps: " + in_blocks(maps, _small_squares(maps)).partition(": ")[2]
    if queries < len(maps.query_tokens) or keys < len(maps.key_tokens):
        yield "Numbers count tokens from 1; not every token is named."


def _cell(count: int) -> float:
    """Pixels of one of `count` tokens along an axis of the large map."""
    return min(_CELL, max(_LARGE / count, _PITCH if count <= _NAMED else 0))


def _labels(tokens: Sequence[str], cell: float) -> dict[int, str]:
    """What stands beside the map, by place; where all have no room some are left out."""
    step = math.ceil(_PITCH / cell)
    if step == 1:
        return {i: short(visible(raw)) for i, raw in enumerate(tokens)}
    return {i: short(f"{i + 1} {visible(tokens[i])}") for i in range(0, len(tokens), step)}


def _smalls(
    maps: AttentionMaps, names: Sequence[str], size: float, left: float, top: float
) -> Iterator[Mark]:
    queries, keys = len(maps.query_tokens), len(maps.key_tokens)
    high, wide = (max(_LINE, size * count / max(queries, keys)) for count in (queries, keys))
    for column, number in enumerate(maps.columns):
        x = left + column * (size + _GAP) + wide / 2
        yield Words(x=x, y=top, words=f"H{number}", side="middle")
    for layer, heads in enumerate(maps.layers):
        y = top + _GAP + layer * (high + _GAP)
        yield Words(x=left - _GAP, y=y + high / 2 + 4, words=short(names[layer]), side="end")
        shown = palette.peaks(heads, _small_squares(maps))
        for number, weights in zip(maps.numbers(layer), shown, strict=True):
            x = left + maps.columns.index(number) * (size + _GAP)
            yield Map(x=x, y=y, width=wide, height=high, weights=weights)


def _small_squares(maps: AttentionMaps) -> int:
    side = math.isqrt(_SMALL_CELLS // sum(len(one) for one in maps.layers))
    return min(max(side, 8), _SMALL)


def _legend(x: float, y: float) -> Iterator[Mark]:
    # Even steps of colour are squares of weights.
    yield Map(x=x, y=y, width=_STRIP, height=10, weights=np.square(np.linspace(0, 1, 128))[None])
    yield Words(x=x - _GAP, y=y + 9, words="weight", side="end")
    for weight in (0.0, 0.05, 0.25, 0.5, 1.0):
        at = x + _STRIP * math.sqrt(weight)
        yield Words(x=at, y=y + 25, words=f"{weight:g}", side="middle")


def _strongest(maps: AttentionMaps, weights: Weights) -> str:
    key = int(weights[-1].argmax())
    query, looked_at = visible(maps.query_tokens[-1])[:80], visible(maps.key_tokens[key])[:80]
    return f"‘{query}’ looks most at ‘{looked_at}’ with {float(weights[-1, key]):.2f}"


def _svg(drawing: Drawing) -> str:
    width, height = round(drawing.width), round(drawing.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="sans-serif">'
        f"<title>{_escaped(drawing.title)}</title><desc>{_escaped(drawing.said)}</desc>"
        f"<style>{_STYLE}</style>"
        f'<rect class="paper" width="100%" height="100%" fill="{_PAPER}"/>'
        + "".join(map(_element, drawing.marks))
        + "</svg>\n"
    )


def _escaped(words: str) -> str:
    whole = _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", prose(words))
    return html.escape(whole)


def _element(mark: Mark) -> str:
    match mark:
        case Words(x=x, y=y):
            colour, name = (_INK, "ink") if mark.ink else (_MUTED, "muted")
            turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' * mark.turned
            return (
                f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" fill="{colour}" '
                f'font-size="{mark.size}" text-anchor="{mark.side}"{turned}>'
                f"{_escaped(mark.words)}</text>"
            )
        case Map():
            # Light lies over dark: where styles are not understood, light is seen.
            place = (
                f'x="{mark.x:.1f}" y="{mark.y:.1f}" width="{mark.width:.1f}" '
                f'height="{mark.height:.1f}" preserveAspectRatio="none"'
            )
            light, dark = palette.images(mark.weights)
            return f'<image {place} href="{dark}"/><image class="light" {place} href="{light}"/>'
        case Line(start=(x, y), end=(to_x, to_y)):
            return (
                f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" '
                f'stroke="{_ACCENT}" stroke-opacity="{mark.link.opacity:.2f}" '
                f'stroke-width="{mark.link.width:.2f}"/>'
            )


def _families() -> list[str]:
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return [name for name in _FAMILIES if name in installed]


def _writable(maps: AttentionMaps, title: str) -> tuple[AttentionMaps, str]:
    """With every letter that has no font written as Python writes it, before anything is placed."""
    from matplotlib.font_manager import findfont, get_font

    fonts = [get_font(findfont(name)) for name in _families()]

    def drawn(letter: str) -> str:
        if letter.isspace() or any(font.get_char_index(ord(letter)) for font in fonts):
            return letter
        return letter.encode("unicode_escape").decode("ascii")

    def written(words: str) -> str:
        return "".join(map(drawn, words))

    writable = replace(
        maps,
        query_tokens=[written(raw) for raw in maps.query_tokens],
        key_tokens=[written(raw) for raw in maps.key_tokens],
        layer_names=[written(raw) for raw in maps.layer_names],
    )
    return writable, written(prose(title))


def _png(drawing: Drawing, scale: float) -> bytes:
    from matplotlib import style
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    # Whatever a reader's own settings are, the picture is the same.
    with style.context({"font.family": _families(), "text.parse_math": False}, after_reset=True):
        width, height = round(drawing.width), round(drawing.height)
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, facecolor=_PAPER)
        paper = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        paper.set_axis_off()
        strokes = [mark for mark in drawing.marks if isinstance(mark, Line)]
        for mark in drawing.marks:
            match mark:
                case Words():
                    paper.text(
                        mark.x,
                        mark.y,
                        mark.words,
                        color=_INK if mark.ink else _MUTED,
                        fontsize=mark.size,
                        ha={"start": "left", "middle": "center", "end": "right"}[mark.side],
                        rotation=90 if mark.turned else 0,
                        rotation_mode="anchor",
                    )
                case Map():
                    paper.imshow(
                        palette.scale(palette.LIGHT)[palette.levels(mark.weights)],
                        extent=(mark.x, mark.x + mark.width, mark.y + mark.height, mark.y),
                        aspect="auto",
                        interpolation="none",
                    )
        drawn = LineCollection(
            [(one.start, one.end) for one in strokes],
            colors=[(_ACCENT, one.link.opacity) for one in strokes],
            linewidths=[one.link.width for one in strokes],
        )
        paper.add_collection(drawn)
        paper.set(xlim=(0, width), ylim=(height, 0))  # pictures move the limits
        file = BytesIO()
        figure.savefig(file, format="png", dpi=72 * scale, metadata={"Software": None})
    return file.getvalue()
