"""Attention between tokens: all heads small, one head large, one query as text, and lines.

A text too long for a screen is shown in blocks of tokens, and the caption says so. The page is
complete without a script. page.js reads the same numbers (`data-weights`, see `_pack`) to enlarge
another head and to show single weights.

    lines: weight >= threshold, the lowest of THRESHOLDS that at most 4 weights per query reach
    opacity = sqrt(weight), width = 1 + 2 weight
"""

import base64
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from harken.report import canvas
from harken.report.canvas import MARGIN, Drawing, Heatmap, Label, Mark, short, text_width
from harken.report.markup import grouped, prose, token, visible
from harken.report.page import render
from harken.report.palette import Weights, block_size, max_pool, strength
from harken.report.viewed_attention import ViewedAttention

# As page.js has them too.
_PACKED_UNIT = 10_000  # four decimals, so that the two shown are correct
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.5)
LINES_PER_QUERY = 4
_TICKS = [(f"{weight:g}", math.sqrt(weight)) for weight in (0.0, 0.05, 0.25, 0.5, 1.0)]
_MAX_TOKENS, _MIN_TOKENS = 256, 32  # along an axis of a figure that shows blocks
_MAX_WEIGHTS = 2_000_000  # of all heads of a figure; one costs 5 bytes at worst
_MAX_LETTERS = 80  # of a token
# Of the drawing, in pixels.
_GAP, _LARGE, _CELL, _PITCH = 6, 640, 28, 14  # the large map, a cell at most, a label at least
_ALL_LABELED = 64  # tokens up to which every one has a label
_LARGE_CELLS, _SMALL_CELLS = 320, 500_000  # along the large map; of all small maps together
_SMALL, _MIN_SMALL, _ROW = 112, 28, 640  # a small map, and a row of them


class AttentionLine(NamedTuple):
    """A line from a query to a key."""

    query: int
    key: int
    weight: float


def attention_lines(weights: Weights) -> tuple[list[AttentionLine], str]:
    """Return the lines of a head, weights [queries, keys], the strongest last, and a caption."""
    weights = np.round(np.clip(weights.astype(np.float64), 0, 1), 4)
    limit = LINES_PER_QUERY * len(weights)
    counts = {threshold: np.count_nonzero(weights >= threshold) for threshold in THRESHOLDS}
    threshold = next((t for t in THRESHOLDS if counts[t] <= limit), THRESHOLDS[-1])
    queries, keys = np.nonzero(weights >= threshold)
    # Of equal weights the earlier ones are drawn, as in page.js.
    order = np.argsort(-weights[queries, keys], kind="stable")[:limit][::-1]
    pairs = zip(queries[order].tolist(), keys[order].tolist(), strict=True)
    drawn = [AttentionLine(query, key, float(weights[query, key])) for query, key in pairs]
    if not drawn:
        return [], f"no line: the largest weight is {weights.max():.2f}, below {threshold:g}"
    caption = f"every weight of at least {threshold:g}"
    if len(drawn) < len(queries):
        total = f"{grouped(len(queries))} weights of at least {threshold:g}"
        caption = f"the largest {grouped(len(drawn))} of {total}"
    return drawn, caption


def sharpest(viewed: ViewedAttention) -> tuple[int, int]:
    """Return the (layer, head) whose last query has the largest sum of squared weights."""
    sums = [
        np.square(layer.weights[:, -1].astype(np.float64)).sum(axis=-1) for layer in viewed.layers
    ]
    layer = max(range(len(sums)), key=lambda i: float(sums[i].max()))
    return layer, int(sums[layer].argmax())


def _block_sentence(viewed: ViewedAttention, limit: int) -> str:
    queries, keys = len(viewed.view.queries), len(viewed.view.keys)
    return (
        f"{grouped(queries)} queries and {grouped(keys)} keys: each square is the largest weight "
        f"of {block_size(queries, limit)} × {block_size(keys, limit)} tokens."
    )


def _block_names(tokens: Sequence[str], limit: int) -> list[str]:
    """Return the names of blocks: number (from 1) and text of the first token."""
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
    limit = min(max(side, _MIN_TOKENS), _MAX_TOKENS)
    view, pooled = viewed.view, viewed.pooled(limit)
    in_blocks = max(len(view.queries), len(view.keys)) > limit
    weights = pooled.layers[layer].weights
    queries, keys = _block_names(view.queries, limit), _block_names(view.keys, limit)
    return render(
        "text_attention.html",
        title=title,
        note=note,
        blocks=_block_sentence(viewed, limit) if in_blocks else "",
        layer=pooled.layers[layer],
        head=head,
        whole=_peak(view.queries[-1], view.keys, viewed.layers[layer].weights[head, -1]),
        queries=queries,
        keys=keys,
        columns=viewed.columns,
        rows=pooled.layers,
        chosen=(layer, head),
        pack=_pack,
        longest=max(weights.shape[1:]),
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
    row, column = map(_cell, weights.shape)
    high, wide = row * len(view.queries), column * len(view.keys)
    queries, keys = _labels(view.queries, row), _labels(view.keys, column)
    names = [short(prose(each.name)) for each in viewed.layers]
    left = MARGIN + _GAP + max(map(text_width, [*queries.values(), *names, "weight"]))
    columns = len(viewed.columns)
    small = min(_SMALL, max(_MIN_SMALL, _ROW / columns - _GAP))
    width = left + max(wide, columns * (small + _GAP), _LARGE / 2) + MARGIN
    name = viewed.layers[layer].head_name(head)
    notes = [name, "rows are queries, columns are keys"]
    longest, cells = max(weights.shape), _small_cells(viewed)
    if longest > _LARGE_CELLS:
        notes.append(_block_sentence(viewed, _LARGE_CELLS))
    if longest > cells:
        notes.append("Small maps: " + _block_sentence(viewed, cells).partition(": ")[2])
    if (len(queries), len(keys)) != weights.shape:
        notes.append("Numbers count tokens from 1; not every token has a label.")
    labels = canvas.heading(title, notes, left, width)
    y = labels[-1].y + 2 * _GAP + max(map(text_width, keys.values()))
    marks: list[Mark] = [
        *labels,
        *(Label(left + (i + 0.5) * column + 4, y, text, rotated=True) for i, text in keys.items()),
    ]
    y += 2 * _GAP  # keeps the first labels of both axes apart
    marks += [
        Label(left - _GAP, y + (i + 0.5) * row + 4, text, anchor="end")
        for i, text in queries.items()
    ]
    marks.append(Heatmap(left, y, wide, high, max_pool(weights, _LARGE_CELLS)))
    y += high + canvas.LINE
    marks += canvas.legend(left, y, _TICKS)
    smalls = list(_small_maps(viewed, names, small, left, y + 3 * canvas.LINE))
    bottom = max(mark.y + mark.height for mark in smalls if isinstance(mark, Heatmap))
    key = int(weights[-1].argmax())
    return Drawing(
        width=width,
        height=bottom + MARGIN,
        title=title,
        description=f"{name}: ‘{visible(view.queries[-1])[:80]}’ attends most to "
        f"‘{visible(view.keys[key])[:80]}’ ({float(weights[-1, key]):.2f})",
        marks=[*marks, *smalls],
    )


def _cell(count: int) -> float:
    """Return the pixels per token along an axis of the large map."""
    return min(_CELL, max(_LARGE / count, _PITCH if count <= _ALL_LABELED else 0))


def _labels(tokens: Sequence[str], cell: float) -> dict[int, str]:
    """Return labels by position, as many as fit."""
    step = math.ceil(_PITCH / cell)
    number = "{} " if step > 1 else ""
    return {
        i: short(number.format(i + 1) + visible(tokens[i])) for i in range(0, len(tokens), step)
    }


def _small_cells(viewed: ViewedAttention) -> int:
    return min(max(math.isqrt(_SMALL_CELLS // viewed.head_count), 8), _SMALL)


def _small_maps(
    viewed: ViewedAttention, names: Sequence[str], size: float, left: float, top: float
) -> Iterator[Mark]:
    counts = len(viewed.view.queries), len(viewed.view.keys)
    high, wide = (max(canvas.LINE, size * count / max(counts)) for count in counts)
    x = {head: left + i * (size + _GAP) for i, head in enumerate(viewed.columns)}
    for head in viewed.columns:
        yield Label(x[head] + wide / 2, top, f"H{head}", anchor="middle")
    for i, layer in enumerate(viewed.layers):
        y = top + _GAP + i * (high + _GAP)
        yield Label(left - _GAP, y + high / 2 + 4, names[i], anchor="end")
        small = max_pool(layer.weights, _small_cells(viewed))
        for head, weights in zip(layer.heads, small, strict=True):
            yield Heatmap(x[head], y, wide, high, weights)
