"""Attention between tokens: maps of all heads, one large map, and a line diagram.

Long texts are shown in blocks of tokens. The page is complete without JavaScript; page.js reads the
weights (see `_pack`) to enlarge another head and to show single weights.

The line diagram shows the weights of at least a threshold: the lowest of THRESHOLDS that gives at
most LINES_PER_QUERY lines per query on average. Opacity = sqrt(weight), line width = 1 + 2 weight.
"""

import base64
import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from harken.report import canvas
from harken.report.canvas import MARGIN, Drawing, Heatmap, Label, Mark, shorten, text_width
from harken.report.markup import group_digits, token_html, visible_text, visible_token
from harken.report.page import render
from harken.report.palette import Weights, block_size, color_position, max_pool
from harken.report.viewed_attention import ViewedAttention

# These three have the same values in page.js.
_PACKED_UNIT = 10_000  # four decimals; page.js rounds them to two
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.5)
LINES_PER_QUERY = 4

_TICKS = [(f"{weight:g}", math.sqrt(weight)) for weight in (0.0, 0.05, 0.25, 0.5, 1.0)]
_MAX_BLOCKS, _MIN_BLOCKS = 256, 32  # along an axis of a page, if the text is long
_MAX_WEIGHTS = 2_000_000  # of all heads of a page; a weight takes up to 5 bytes
_MAX_LETTERS = 80  # of a token
# Sizes in the image file, in pixels unless stated otherwise.
_GAP = 6
_LARGE, _MAX_CELL, _MIN_LABEL = 640, 28, 14  # the large map, one of its cells, one of its labels
_MIN_SMALL, _MAX_SMALL, _SMALL_ROW = 28, 112, 640  # a small map, a row of small maps
_ALL_LABELED = 64  # maximum number of tokens that all have a label
_LARGE_BLOCKS, _SMALL_WEIGHTS = 320, 500_000  # along the large map; of all small maps


class AttentionLine(NamedTuple):
    """A line from a query to a key."""

    query: int
    key: int
    weight: float


def attention_lines(weights: Weights) -> tuple[list[AttentionLine], str]:
    """Return the lines for weights [queries, keys], the largest last, and a caption."""
    weights = np.round(np.clip(weights.astype(np.float64), 0, 1), 4)
    limit = LINES_PER_QUERY * len(weights)
    counts = ((lowest, np.count_nonzero(weights >= lowest)) for lowest in THRESHOLDS)
    threshold = next((lowest for lowest, count in counts if count <= limit), THRESHOLDS[-1])
    queries, keys = np.nonzero(weights >= threshold)
    # Among equal weights the first ones are drawn, as in page.js.
    order = np.argsort(-weights[queries, keys], kind="stable")[:limit][::-1]
    pairs = zip(queries[order].tolist(), keys[order].tolist(), strict=True)
    drawn = [AttentionLine(query, key, float(weights[query, key])) for query, key in pairs]
    if not drawn:
        return [], f"no weight: the largest is {weights.max():.2f}, below {threshold:g}"
    which = "every weight"
    if len(drawn) < len(queries):
        which = f"the largest {group_digits(len(drawn))} of {group_digits(len(queries))} weights"
    return drawn, f"{which} of at least {threshold:g}"


def sharpest_head(viewed: ViewedAttention) -> tuple[int, int]:
    """Return the (layer, head) whose last query has the largest sum of squared weights."""
    rows = [layer.weights[:, -1].astype(np.float64) for layer in viewed.layers]
    sums = [np.square(row).sum(axis=-1) for row in rows]
    layer = max(range(len(sums)), key=lambda i: float(sums[i].max()))
    return layer, int(sums[layer].argmax())


def _block_sentence(viewed: ViewedAttention, limit: int) -> str:
    queries, keys = (block_size(count, limit) for count in viewed.shape)
    return f"each cell is the largest weight of {queries} × {keys} tokens."


def _size_sentence(viewed: ViewedAttention, limit: int) -> str:
    queries, keys = map(group_digits, viewed.shape)
    return f"{queries} queries and {keys} keys: {_block_sentence(viewed, limit)}"


def _block_names(tokens: Sequence[str], limit: int) -> list[str]:
    """Name each block by the number (from 1) and the text of its first token."""
    if len(tokens) > limit:
        size = block_size(len(tokens), limit)
        tokens = [f"{i + 1} {visible_token(tokens[i])} …" for i in range(0, len(tokens), size)]
    return list(map(_truncate, tokens))


def _truncate(raw: str) -> str:
    return raw if len(raw) <= _MAX_LETTERS else raw[: _MAX_LETTERS - 1] + "…"


def _pack(weights: Weights) -> str:
    """Encode as little-endian 16-bit integers, zlib, base64, as page.js expects."""
    integers = np.rint(np.clip(weights.astype(np.float64), 0, 1) * _PACKED_UNIT).astype("<u2")
    return base64.b64encode(zlib.compress(integers.tobytes(), 9)).decode("ascii")


def _peak_row(query: str, keys: Sequence[str], weights: Weights) -> tuple[Markup, Markup, str]:
    """Return a query, the key with its largest weight, and this weight."""
    key = keys[int(weights.argmax())]
    return token_html(_truncate(query)), token_html(_truncate(key)), f"{weights.max():.2f}"


def text_figure(viewed: ViewedAttention, *, title: str, note: str = "") -> Markup:
    """Return all heads as small maps, and the sharpest head as a large map and lines."""
    layer, head = sharpest_head(viewed)
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
        unpooled_peak=_peak_row(
            view.queries[-1], view.keys, viewed.layers[layer].weights[head, -1]
        ),
        queries=queries,
        keys=keys,
        pack=_pack,
        legend=_TICKS,
        # Of the last query: the weights of the head, and the mean over the heads of its layer.
        strips=[
            list(zip(strip, color_position(strip), strict=True))
            for strip in (weights[head, -1], weights[:, -1].mean(axis=0))
        ],
        peaks=[
            _peak_row(query, keys, row) for query, row in zip(queries, weights[head], strict=True)
        ],
        lines=attention_lines(weights[head]),
    )


def text_drawing(viewed: ViewedAttention, title: str) -> Drawing:
    """Draw the sharpest head large, and all heads small below it."""
    layer, head = sharpest_head(viewed)
    weights, view = viewed.layers[layer].weights[head], viewed.view
    cell_height, cell_width = map(_cell_size, viewed.shape)
    large_height, large_width = cell_height * len(view.queries), cell_width * len(view.keys)
    queries, keys = _labels(view.queries, cell_height), _labels(view.keys, cell_width)
    names = [shorten(visible_text(shown.name)) for shown in viewed.layers]
    left = MARGIN + _GAP + max(map(text_width, [*queries.values(), *names, "weight"]))
    columns = len(viewed.columns)
    small = min(_MAX_SMALL, max(_MIN_SMALL, _SMALL_ROW / columns - _GAP))
    width = left + max(large_width, columns * (small + _GAP), _LARGE / 2) + MARGIN
    name = viewed.layers[layer].head_name(head)
    notes = [name, "rows are queries, columns are keys"]
    small_blocks = min(max(math.isqrt(_SMALL_WEIGHTS // viewed.head_count), 8), _MAX_SMALL)
    if max(viewed.shape) > _LARGE_BLOCKS:
        notes.append(_size_sentence(viewed, _LARGE_BLOCKS))
    if max(viewed.shape) > small_blocks:
        notes.append("Small maps: " + _block_sentence(viewed, small_blocks))
    if (len(queries), len(keys)) != viewed.shape:
        notes.append("Numbers count tokens from 1. Not every token has a label.")
    heading = canvas.heading(title, notes, left, width)
    marks: list[Mark] = [*heading]
    y = heading[-1].y + 2 * _GAP + max(map(text_width, keys.values()))
    for i, text in keys.items():
        marks.append(Label(left + (i + 0.5) * cell_width + 4, y, text, rotated=True))
    y += 2 * _GAP  # so that the first labels of both axes do not touch
    for i, text in queries.items():
        marks.append(Label(left - _GAP, y + (i + 0.5) * cell_height + 4, text, anchor="end"))
    pooled_weights = max_pool(weights, _LARGE_BLOCKS)
    marks.append(Heatmap(left, y, large_width, large_height, pooled_weights))
    y += large_height + canvas.LINE
    marks += canvas.legend(left, y, _TICKS)
    y += 3 * canvas.LINE
    # The longer side of a small map has `small` pixels.
    small_height, small_width = (
        max(canvas.LINE, small * count / max(viewed.shape)) for count in viewed.shape
    )
    x = {number: left + i * (small + _GAP) for i, number in enumerate(viewed.columns)}
    for number in viewed.columns:
        marks.append(Label(x[number] + small_width / 2, y, f"H{number}", anchor="middle"))
    y += _GAP
    for pooled, text in zip(viewed.pooled(small_blocks).layers, names, strict=True):
        marks.append(Label(left - _GAP, y + small_height / 2 + 4, text, anchor="end"))
        for number, head_weights in zip(pooled.heads, pooled.weights, strict=True):
            marks.append(Heatmap(x[number], y, small_width, small_height, head_weights))
        y += small_height + _GAP
    key = int(weights[-1].argmax())
    return Drawing(
        width=width,
        height=y - _GAP + MARGIN,
        title=title,
        description=f"{name}: ‘{visible_token(view.queries[-1])[:80]}’ attends most to "
        f"‘{visible_token(view.keys[key])[:80]}’ ({float(weights[-1, key]):.2f})",
        marks=marks,
    )


def _cell_size(count: int) -> float:
    """Return the pixels per token along an axis of the large map."""
    return min(_MAX_CELL, max(_LARGE / count, _MIN_LABEL if count <= _ALL_LABELED else 0))


def _labels(tokens: Sequence[str], cell: float) -> dict[int, str]:
    """Return the label of every token, or, if not all fit, of every n-th token with its number."""
    step = math.ceil(_MIN_LABEL / cell)
    labels = {}
    for i in range(0, len(tokens), step):
        number = f"{i + 1} " if step > 1 else ""
        labels[i] = shorten(number + visible_token(tokens[i]))
    return labels
