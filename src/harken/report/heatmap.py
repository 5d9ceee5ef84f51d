"""Attention as pictures: every head small, one head large, one query as a line of text, and lines.

A text too long for a screen is shown in blocks of tokens, and the caption says so. The page is
complete without a script. page.js reads the same numbers (`data-weights`, see `_packed`) to enlarge
another head and to read single cells aloud. Files are made by `attention_file.py`.
"""

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harken.report.attention_lines import labels, lines_figure
from harken.report.markup import attribute, grouped, text, token, visible
from harken.report.palette import block, peaks, picture, strength

# Of the weights that travel to page.js: four decimals, so that the two shown are right.
_PACKED_UNIT = 10_000
_TOLERANCE = 1e-3  # half precision leaves 1.0004 behind a softmax
_LEGEND = (0.0, 0.05, 0.25, 0.5, 1.0)
_WORTH_A_FIGURE = 0.05  # weights below it carry no number in a strip
_MOST_TOKENS, _LEAST_TOKENS = 256, 32  # along an axis of a figure that has to leave some out
_MOST_CELLS = 2_000_000  # of all heads of a figure; one costs 5 bytes at worst
_LETTERS = 80  # of a token; more are cut off
_SCROLLED = 64  # tokens: more than a strip shows at once
_DENSE = 88  # tokens: more than a small map has pixels

Weights = NDArray[np.floating]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionMaps:
    """What every head of every layer looked at: `layers` are arrays [heads, queries, keys]."""

    query_tokens: Sequence[str]
    key_tokens: Sequence[str]
    layers: Sequence[Weights]
    layer_names: Sequence[str] = ()  # L1, L2, … when left out
    head_numbers: Sequence[Sequence[int]] = ()  # of each layer; 1, 2, … when left out

    def __post_init__(self) -> None:
        if not self.query_tokens or not self.key_tokens or not self.layers:
            raise ValueError("attention maps need at least one query, one key and one layer")
        wanted = (len(self.query_tokens), len(self.key_tokens))
        for number, weights in enumerate(self.layers, start=1):
            if weights.ndim != 3 or weights.shape[0] == 0 or weights.shape[1:] != wanted:
                raise ValueError(
                    f"layer {number}: weights of shape {weights.shape}, "
                    f"expected [heads, {wanted[0]} queries, {wanted[1]} keys]"
                )
            # A NaN is the least and the most of all, and no comparison holds for it.
            if not (weights.min() >= -_TOLERANCE and weights.max() <= 1 + _TOLERANCE):
                raise ValueError(f"layer {number}: weights outside 0..1, or NaN")
        if self.layer_names and len(self.layer_names) != len(self.layers):
            raise ValueError(f"{len(self.layer_names)} names for {len(self.layers)} layers")
        counts, expected = list(map(len, self.head_numbers)), list(map(len, self.layers))
        if counts and counts != expected:
            raise ValueError(f"{counts} head numbers for {expected} heads in each layer")

    def layer_name(self, layer: int) -> str:
        return self.layer_names[layer] if self.layer_names else f"L{layer + 1}"

    def numbers(self, layer: int) -> Sequence[int]:
        """Return the numbers of a layer's heads, counted from 1."""
        return (
            self.head_numbers[layer] if self.head_numbers else range(1, len(self.layers[layer]) + 1)
        )

    def head_label(self, layer: int, head: int) -> str:
        """Return the name of the head at these indices, such as L1.H3."""
        return f"{self.layer_name(layer)}.H{self.numbers(layer)[head]}"

    @property
    def columns(self) -> list[int]:
        """The numbers of all heads of any layer: the columns of an overview."""
        return sorted(
            {number for layer in range(len(self.layers)) for number in self.numbers(layer)}
        )


def attention_figure(
    maps: AttentionMaps, *, title: str, note: str = "", chosen: tuple[int, int] | None = None
) -> str:
    """The overview, and large the head `chosen` (layer, head) from 0.

    By default that is the head whose last query looks most at a single place.
    """
    layer, head = sharpest(maps) if chosen is None else chosen
    if not (0 <= layer < len(maps.layers) and 0 <= head < len(maps.layers[layer])):
        raise ValueError(f"no head {head} in layer {layer}")
    name, most = maps.head_label(layer, head), _affordable(maps)
    remarks = [text(note)] * bool(note)
    if max(len(maps.query_tokens), len(maps.key_tokens)) > most:
        reading = _reading(_brief(maps), maps.layers[layer][head])
        remarks.append(f"{text(in_blocks(maps, most))} In {text(name)}, {reading}.")
    remark = f" <span>{' '.join(remarks)}</span>" if remarks else ""
    shown = _brief(condensed(maps, most))
    lines = lines_figure(shown.query_tokens, shown.key_tokens, shown.layers[layer][head], name)
    return (
        f'<figure class="attention"><figcaption><strong>{text(title)}</strong>{remark}</figcaption>'
        '<p class="hint" hidden>Choose a small map to enlarge it. Point at a cell of the large '
        "map, or move with the arrow keys, to read it; click or press Enter to take its row as the "
        "query below. Among the lines, up and down take another query, left and right another "
        "head.</p>"
        f'<div class="looking">{_overview(shown, layer, head)}{_detail(shown, layer, head)}</div>'
        f"{_strips(shown, layer, head)}{lines}{_strongest(shown, layer, head)}</figure>"
    )


def condensed(maps: AttentionMaps, most: int) -> AttentionMaps:
    """At most `most` queries and keys: blocks of tokens, each with the largest of its weights."""
    return replace(
        maps,
        query_tokens=_blocks(maps.query_tokens, most),
        key_tokens=_blocks(maps.key_tokens, most),
        layers=[peaks(weights, most) for weights in maps.layers],
    )


def in_blocks(maps: AttentionMaps, most: int) -> str:
    """A sentence for the reader of a condensed map."""
    queries, keys = len(maps.query_tokens), len(maps.key_tokens)
    return (
        f"{grouped(queries)} queries and {grouped(keys)} keys: each square is the largest weight "
        f"of {block(queries, most)} × {block(keys, most)} tokens."
    )


def _blocks(tokens: Sequence[str], most: int) -> Sequence[str]:
    """Named by their first token and its place, counted from 1."""
    if len(tokens) <= most:
        return tokens
    size = block(len(tokens), most)
    return [f"{i + 1} {visible(tokens[i])} …" for i in range(0, len(tokens), size)]


def _brief(maps: AttentionMaps) -> AttentionMaps:
    def cut(tokens: Sequence[str]) -> Sequence[str]:
        return [raw if len(raw) <= _LETTERS else raw[: _LETTERS - 1] + "…" for raw in tokens]

    return replace(maps, query_tokens=cut(maps.query_tokens), key_tokens=cut(maps.key_tokens))


def _affordable(maps: AttentionMaps) -> int:
    """How many tokens along an axis keep the page small, with all the heads there are."""
    side = math.isqrt(_MOST_CELLS // sum(len(weights) for weights in maps.layers))
    return min(max(side, _LEAST_TOKENS), _MOST_TOKENS)


def sharpest(maps: AttentionMaps) -> tuple[int, int]:
    """The (layer, head) whose last query spreads least: the largest sum of squared weights."""
    sums = [np.square(weights[:, -1].astype(np.float64)).sum(axis=-1) for weights in maps.layers]
    layer = max(range(len(sums)), key=lambda i: float(sums[i].max()))
    return layer, int(sums[layer].argmax())


def _packed(weights: Weights) -> str:
    """Little-endian 16-bit integers, zlib, base64: what page.js unpacks."""
    whole = np.rint(np.clip(weights.astype(np.float64), 0, 1) * _PACKED_UNIT).astype("<u2")
    return base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode("ascii")


def _overview(maps: AttentionMaps, layer: int, head: int) -> str:
    columns = maps.columns
    most = len(columns)
    heads = "".join(f'<th scope="col">H{number}</th>' for number in columns)
    rows = "".join(
        f'<tr><th scope="row">{text(maps.layer_name(i))}</th>{_row(maps, i, layer, head)}</tr>'
        for i in range(len(maps.layers))
    )
    size = 88 if most <= 4 else 64 if most <= 8 else 48
    return (
        f'<div class="overview"><table style="--heads:{most};--small:{size}px">'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(maps: AttentionMaps, row: int, layer: int, head: int) -> str:
    """The small maps of a layer, each below the number of its head."""
    indices = {number: index for index, number in enumerate(maps.numbers(row))}
    return "".join(
        _small(maps, row, indices[number], chosen=(row, indices[number]) == (layer, head))
        if number in indices
        else "<td></td>"
        for number in maps.columns
    )


def _small(maps: AttentionMaps, layer: int, head: int, *, chosen: bool) -> str:
    weights = maps.layers[layer][head]
    name = maps.head_label(layer, head)
    dense = " dense" if max(weights.shape) > _DENSE else ""
    return (
        f'<td><span class="small{" chosen" if chosen else ""}{dense}" data-layer="{layer}" '
        f'data-head="{head}" data-name={attribute(name)} data-weights="{_packed(weights)}">'
        f"{picture(weights, alt=name)}</span></td>"
    )


def _detail(maps: AttentionMaps, layer: int, head: int) -> str:
    weights = maps.layers[layer][head]
    longest = max(weights.shape)
    cell = 28 if longest <= 14 else 20 if longest <= 32 else 14
    name = maps.head_label(layer, head)
    return (
        f'<div class="detail"><p class="rows"><b class="name">{text(name)}</b> '
        '<span class="muted">each row looks at the columns</span></p>'
        '<div class="map" tabindex="0" role="region" aria-label="large map" '
        f'style="--queries:{weights.shape[0]};--keys:{weights.shape[1]};--size:{cell}px">'
        f'<div class="corner"></div><ol class="keys">{labels(maps.key_tokens)}</ol>'
        f'<ol class="queries">{labels(maps.query_tokens)}</ol>'
        f'<div class="cells">{picture(weights, alt=f"attention of {name}")}'
        '<span class="cursor" hidden></span></div></div>'
        f'<p class="reading" aria-live="polite">{_reading(maps, weights)}</p>{_legend()}</div>'
    )


def _reading(maps: AttentionMaps, weights: Weights) -> str:
    key = int(weights[-1].argmax())
    return (
        f"‘{token(maps.query_tokens[-1])}’ looks most at ‘{token(maps.key_tokens[key])}’ "
        f"with {float(weights[-1, key]):.2f}"
    )


def _legend() -> str:
    # The strip is even in strength, so its weights are squares.
    strip = picture(np.square(np.linspace(0, 1, 128))[None], alt="")
    marks = "".join(
        f'<span style="left:{100 * float(strong):.1f}%">{weight:g}</span>'
        for weight, strong in zip(_LEGEND, strength(np.array(_LEGEND)), strict=True)
    )
    return f'<div class="scale"><span>weight</span><div>{strip}{marks}</div></div>'


def _strips(maps: AttentionMaps, layer: int, head: int) -> str:
    weights = maps.layers[layer]
    layer_name = text(maps.layer_name(layer))
    scrolled = ' tabindex="0"' if len(maps.key_tokens) > _SCROLLED else ""
    return (
        '<div class="strips"><p>What ‘'
        f'<span class="query">{token(maps.query_tokens[-1])}</span>’'
        '<span class="last">, the last query,</span> looks at</p><dl>'
        f'<dt class="of-head">{text(maps.head_label(layer, head))}</dt>'
        f'<dd class="head"{scrolled}>{_strip(maps.key_tokens, weights[head, -1])}</dd>'
        f'<dt class="of-layer">{layer_name}, mean of its heads</dt>'
        f'<dd class="mean"{scrolled}>{_strip(maps.key_tokens, weights[:, -1].mean(axis=0))}</dd>'
        "</dl></div>"
    )


def _strip(tokens: Sequence[str], weights: Weights) -> str:
    return "".join(
        f'<span style="--w:{float(strong):.3f}">{token(raw)}<small>'
        f"{f'{float(weight):.2f}' if weight >= _WORTH_A_FIGURE else ''}</small></span>"
        for raw, weight, strong in zip(tokens, weights, strength(weights), strict=True)
    )


def _strongest(maps: AttentionMaps, layer: int, head: int) -> str:
    """The large map in words, for those who cannot see it."""
    weights = maps.layers[layer][head]
    rows = "".join(
        f"<tr><td>{token(raw)}</td><td>{token(maps.key_tokens[int(row.argmax())])}</td>"
        f'<td class="number">{float(row.max()):.2f}</td></tr>'
        for raw, row in zip(maps.query_tokens, weights, strict=True)
    )
    return (
        '<details class="strongest"><summary>Where each token looks most, in figures: '
        f'<span class="name">{text(maps.head_label(layer, head))}</span></summary>'
        '<table><thead><tr><th scope="col">token</th><th scope="col">looks most at</th>'
        f'<th scope="col" class="number">weight</th></tr></thead><tbody>{rows}</tbody></table>'
        "</details>"
    )
