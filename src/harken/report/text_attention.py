"""Attention between tokens: maps of all heads, one large map, and lines from queries to keys.

A long text is shown in blocks of tokens. The page is complete without a script; page.js reads the
weights (see `_pack`) to enlarge another head and to show single weights.

    lines: weight >= threshold, the lowest of THRESHOLDS that at most 4 weights per query reach
    opacity = sqrt(weight), width = 1 + 2 weight
"""

import base64
import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from harken.report import canvas
from harken.report.canvas import MARGIN, Drawing, Heatmap, Label, Mark, short, text_width
from harken.report.markup import grouped, prose, token, visible
from harken.report.page import render
from harken.report.palette import Weights, block_size, max_pool, strength
from harken.report.viewed_attention import ViewedAttention

# The same values are in page.js.
_PACKED_UNIT = 10_000  # four decimals, so that the two shown are correct
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.5)
LINES_PER_QUERY = 4
_TICKS = [(f"{weight:g}", math.sqrt(weight)) for weight in (0.0, 0.05, 0.25, 0.5, 1.0)]
_MAX_BLOCKS, _MIN_BLOCKS = 256, 32  # along an axis of a page, if a text is shown in blocks
_MAX_WEIGHTS = 2_000_000  # of all heads of a page; a weight takes up to 5 bytes
_MAX_LETTERS = 80  # of a token
# Of the file, in pixels: a gap, the large map, its cells, its labels, a small map, a row of these.
_GAP, _LARGE, _MAX_CELL, _MIN_LABEL, _MIN_SMALL, _MAX_SMALL, _ROW = 6, 640, 28, 14, 28, 112, 640
_ALL_LABELED = 64  # tokens up to which every one has a label
_LARGE_BLOCKS, _SMALL_WEIGHTS = 320, 500_000  # along the large map; of all small maps together


class AttentionLine(NamedTuple):
    """A line from a query to a key."""

    query: int
    key: int
    weight: float


def attention_lines(weights: Weights) -> tuple[list[AttentionLine], str]:
    """Return the lines of a head, weights [queries, keys], the strongest last, and a caption."""
    weights = np.round(np.clip(weights.astype(np.float64), 0, 1), 4)
    limit = LINES_PER_QUERY * len(weights)
    few = (t for t in THRESHOLDS if np.count_nonzero(weights >= t) <= limit)
    threshold = next(few, THRESHOLDS[-1])
    queries, keys = np.nonzero(weights >= threshold)
    # Ties are resolved in favor of earlier weights, as in page.js.
    order = np.argsort(-weights[queries, keys], kind="stable")[:limit][::-1]
    pairs = zip(queries[order].tolist(), keys[order].tolist(), strict=True)
    drawn = [AttentionLine(query, key, float(weights[query, key])) for query, key in pairs]
    if not drawn:
        return [], f"no line: the largest weight is {weights.max():.2f}, below {threshold:g}"
    which = "every weight"
    if len(drawn) < len(queries):
        which = f"the largest {grouped(len(drawn))} of {grouped(len(queries))} weights"
    return drawn, f"{which} of at least {threshold:g}"


def sharpest(viewed: ViewedAttention) -> tuple[int, int]:
    """Return the (layer, head) whose last query has the largest sum of squared weights."""
    rows = [layer.weights[:, -1].astype(np.float64) for layer in viewed.layers]
    sums = [np.square(row).sum(axis=-1) for row in rows]
    layer = max(range(len(sums)), key=lambda i: float(sums[i].max()))
    return layer, int(sums[layer].argmax())


def _block_sentence(viewed: ViewedAttention, limit: int) -> str:
    queries, keys = (block_size(count, limit) for count in viewed.shape)
    return f"each square is the largest weight of {queries} × {keys} tokens."


def _size_sentence(viewed: ViewedAttention, limit: int) -> str:
    queries, keys = map(grouped, viewed.shape)
    return f"{queries} queries and {keys} keys: {_block_sentence(viewed, limit)}"


def _block_names(tokens: Sequence[str], limit: int) -> list[str]:
    """Return each block as number (from 1) and text of its first token."""
    if len(tokens) > limit:
        size = block_size(len(tokens), limit)
        tokens = [f"{i + 1} {visible(tokens[i])} …" for i in range(0, len(tokens), size)]
    return list(map(_cut, tokens))


def _cut(raw: str) -> str:
    return raw if len(raw) <= _MAX_LETTERS else raw[: _MAX_LETTERS - 1] + "…"


def _pack(weights: Weights) -> str:
    """Encode as little-endian 16-bit integers, zlib, base64, as page.js expects."""
    whole = np.rint(np.clip(weights.astype(np.float64), 0, 1) * _PACKED_UNIT).astype("<u2")
    return base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode("ascii")


def _peak(query: str, keys: Sequence[str], weights: Weights) -> tuple[Markup, Markup, str]:
    return token(_cut(query)), token(_cut(keys[int(weights.argmax())])), f"{weights.max():.2f}"


def text_figure(viewed: ViewedAttention, *, title: str, note: str = "") -> Markup:
    """Return all heads as small maps and the sharpest one as a large map."""
    layer, head = sharpest(viewed)
    side = math.isqrt(_MAX_WEIGHTS // viewed.head_count)
    limit = min(max(side, _MIN_BLOCKS), _MAX_BLOCKS)
    view, pooled = viewed.view, viewed.pooled(limit)
    weights = pooled.layers[layer].weights
    queries, keys = _block_names(view.queries, limit), _block_names(view.keys, limit)
    return render(
        "text_attention.html",
        title=title,
        note=note,
        blocks=_size_sentence(viewed, limit) if max(viewed.shape) > limit else "",
        viewed=pooled,
        chosen=(layer, head),
        unpooled_peak=_peak(view.queries[-1], view.keys, viewed.layers[layer].weights[head, -1]),
        queries=queries,
        keys=keys,
        pack=_pack,
        legend=_TICKS,
        strips=[
            list(zip(strip, strength(strip), strict=True))
            for strip in (weights[head, -1], weights[:, -1].mean(axis=0))
        ],
        peaks=[_peak(query, keys, row) for query, row in zip(queries, weights[head], strict=True)],
        lines=attention_lines(weights[head]),
    )


def text_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Draw the sharpest head large, and all heads small below it."""
    layer, head = sharpest(viewed)
    weights, view = viewed.layers[layer].weights[head], viewed.view
    row, column = map(_cell, viewed.shape)
    high, wide = row * len(view.queries), column * len(view.keys)
    queries, keys = _labels(view.queries, row), _labels(view.keys, column)
    names = [short(prose(each.name)) for each in viewed.layers]
    left = MARGIN + _GAP + max(map(text_width, [*queries.values(), *names, "weight"]))
    columns = len(viewed.columns)
    small = min(_MAX_SMALL, max(_MIN_SMALL, _ROW / columns - _GAP))
    width = left + max(wide, columns * (small + _GAP), _LARGE / 2) + MARGIN
    name = viewed.layers[layer].head_name(head)
    notes = [name, "rows are queries, columns are keys"]
    small_blocks = min(max(math.isqrt(_SMALL_WEIGHTS // viewed.head_count), 8), _MAX_SMALL)
    if max(viewed.shape) > _LARGE_BLOCKS:
        notes.append(_size_sentence(viewed, _LARGE_BLOCKS))
    if max(viewed.shape) > small_blocks:
        notes.append("Small maps: " + _block_sentence(viewed, small_blocks))
    if (len(queries), len(keys)) != viewed.shape:
        notes.append("IntArray count tokens from 1; not every token has a label.")
    marks: list[Mark] = [*(labels := canvas.heading(title, notes, left, width))]
    y = labels[-1].y + 2 * _GAP + max(map(text_width, keys.values()))
    for i, text in keys.items():
        marks.append(Label(left + (i + 0.5) * column + 4, y, text, rotated=True))
    y += 2 * _GAP  # keeps the first labels of both axes apart
    for i, text in queries.items():
        marks.append(Label(left - _GAP, y + (i + 0.5) * row + 4, text, anchor="end"))
    marks.append(Heatmap(left, y, wide, high, max_pool(weights, _LARGE_BLOCKS)))
    y += high + canvas.LINE
    marks += canvas.legend(left, y, _TICKS)
    y += 3 * canvas.LINE
    high, wide = (max(canvas.LINE, small * count / max(viewed.shape)) for count in viewed.shape)
    x = {number: left + i * (small + _GAP) for i, number in enumerate(viewed.columns)}
    for number in viewed.columns:
        marks.append(Label(x[number] + wide / 2, y, f"H{number}", anchor="middle"))
    y += _GAP
    for each, text in zip(viewed.pooled(small_blocks).layers, names, strict=True):
        marks.append(Label(left - _GAP, y + high / 2 + 4, text, anchor="end"))
        for number, pooled in zip(each.heads, each.weights, strict=True):
            marks.append(Heatmap(x[number], y, wide, high, pooled))
        y += high + _GAP
    key = int(weights[-1].argmax())
    return Drawing(
        width=width,
        height=y - _GAP + MARGIN,
        title=title,
        description=f"{name}: ‘{visible(view.queries[-1])[:80]}’ attends most to "
        f"‘{visible(view.keys[key])[:80]}’ ({float(weights[-1, key]):.2f})",
        marks=marks,
    )


def _cell(count: int) -> float:
    """Return the pixels per token along an axis of the large map."""
    return min(_MAX_CELL, max(_LARGE / count, _MIN_LABEL if count <= _ALL_LABELED else 0))


def _labels(tokens: Sequence[str], cell: float) -> dict[int, str]:
    """Return labels by position, as many as fit; if not all do, with the number of the token."""
    step = math.ceil(_MIN_LABEL / cell)
    number = "{} " if step > 1 else ""
    return {
        i: short(number.format(i + 1) + visible(tokens[i])) for i in range(0, len(tokens), step)
    }
