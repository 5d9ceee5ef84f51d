import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.report.canvas import Heatmap, Label
from harken.report.palette import heatmap
from harken.report.text_attention import (
    LINES_PER_QUERY,
    THRESHOLDS,
    AttentionLine,
    attention_lines,
    sharpest_head,
    text_drawing,
    text_figure,
)
from harken.report.viewed_attention import ViewedAttention

from .parsed import Element, parse
from .sample import viewed

# Distinct primes: a swapped axis cannot pass by luck.
LAYERS, HEADS, QUERIES, KEYS = 2, 3, 5, 7
RANDOM = np.random.default_rng(0).dirichlet(np.ones(KEYS), size=(LAYERS, HEADS, QUERIES))


def tokens(queries: int, keys: int) -> tuple[list[str], list[str]]:
    return [f"q{i}" for i in range(queries)], [f"k{i}" for i in range(keys)]


def maps(weights: np.ndarray = RANDOM) -> ViewedAttention:
    return viewed(*tokens(*weights.shape[2:]), list(weights))


def diagonal(queries: int, keys: int) -> np.ndarray:
    """Query i attends to key i; only in layer 2, head 3 to key i + 1."""
    weights = np.zeros((LAYERS, HEADS, queries, keys))
    for i in range(queries):
        weights[..., i, min(i, keys - 1)] = 0.9
        weights[1, 2, i] = np.eye(keys)[min(i + 1, keys - 1)]
    return weights


def figure(attention: ViewedAttention) -> Element:
    return parse(text_figure(attention, title="t", note="n"))


def test_half_precision_is_accepted() -> None:
    weights = np.full((1, 1, QUERIES, KEYS), 1.0, dtype=np.float16) * np.float16(1.0005)
    assert "1.00" in text_figure(maps(weights), title="t")
    assert text_drawing(maps(weights), "t").svg()


def test_every_head_has_its_own_picture_and_exact_weights() -> None:
    smalls = figure(maps()).find_all("span", "small")
    assert [small.attributes["data-name"] for small in smalls] == [
        f"L{i + 1}.H{j + 1}" for i in range(LAYERS) for j in range(HEADS)
    ]
    for small in smalls:
        layer, head = int(small.attributes["data-layer"]), int(small.attributes["data-head"])
        expected = parse(heatmap(RANDOM[layer, head], "")).find("img").attributes["src"]
        assert small.find("img").attributes["src"] == expected
        packed = zlib.decompress(base64.b64decode(small.attributes["data-weights"]))
        weights = np.frombuffer(packed, "<u2").reshape(QUERIES, KEYS) / 10_000
        np.testing.assert_allclose(weights, RANDOM[layer, head], rtol=0, atol=0.5001e-4)


def test_layers_may_differ_in_heads() -> None:
    whole = maps(np.full((2, HEADS, QUERIES, KEYS), 1 / KEYS))
    attention = whole._replace(layers=[whole.layers[0].select([2]), whole.layers[1]])
    overview = figure(attention).find("div", "overview")
    assert [th.text for th in overview.find("tbody").find_all("th")] == ["L1", "L2"]
    rows = overview.find("tbody").find_all("tr")
    images = [[len(td.find_all("img")) for td in row.find_all("td")] for row in rows]
    assert images == [[0, 1, 0], [1, 1, 1]]
    assert [th.text for th in overview.find("thead").find_all("th")] == ["H1", "H2", "H3"]
    small = [mark for mark in text_drawing(attention, "t").marks if isinstance(mark, Heatmap)][2:]
    assert small[0].x == small[2].x and len(small) == 4


def test_sharpest_head_is_large_and_its_last_query_is_shown() -> None:
    weights = np.full((LAYERS, HEADS, QUERIES, KEYS), 1 / KEYS)
    weights[1, 2, 0] = np.eye(KEYS)[3]  # sharper, but not the last query
    weights[0, 1, -1] = [0, 0.02, 0, 0.83, 0.15, 0, 0]
    assert sharpest_head(maps(weights)) == (0, 1)
    shown = figure(maps(weights))
    assert shown.find("span", "chosen").attributes["data-name"] == "L1.H2"
    assert shown.find("p", "weight-text").text == "‘q4’ attends most to ‘k3’ (0.83)"
    large = parse(heatmap(weights[0, 1], "")).find("img").attributes["src"]
    assert shown.find("div", "cells").find("img").attributes["src"] == large
    head, mean = shown.find("dd", "head"), shown.find("dd", "mean")
    assert [s.text for s in head.find_all("small")] == ["", "", "", "0.83", "0.15", "", ""]
    # (0.83 + 2/7) / 3, and so on
    assert [s.text for s in mean.find_all("small")][1:5] == ["0.10", "0.10", "0.37", "0.15"]
    assert head.find_all("span")[3].attributes["style"] == "--w:0.911"
    strongest = shown.find("details").find("tbody").find_all("tr")
    assert [td.text for td in strongest[-1].find_all("td")] == ["q4", "k3", "0.83"]


def test_a_long_text_is_shown_in_blocks_and_the_caption_says_so() -> None:
    weights = np.zeros((1, 1, 5, 1021))
    weights[..., 300] = 1.0
    shown = figure(maps(weights))
    assert shown.find("figcaption").text == (
        "t n 5 queries and 1\u202f021 keys: each cell is the largest weight of 1 × 4 tokens. "
        "In L1.H1, ‘q4’ attends most to ‘k300’ (1.00)."
    )
    assert [item.text for item in shown.find("ol", "queries").find_all("li")] == tokens(5, 0)[0]
    named = [item.text for item in shown.find("ol", "keys").find_all("li")]
    assert len(named) == 256 and named[75] == "301 k300 …"
    assert shown.find("p", "weight-text").text == "‘q4’ attends most to ‘301 k300 …’ (1.00)"
    assert shown.find("dd", "head").attributes["tabindex"] == "0"


@pytest.mark.parametrize(
    ("layers", "heads", "length", "limit"), [(1, 1, 4096, 1_000_000), (12, 12, 128, 12_000_000)]
)
def test_the_page_stays_affordable(layers: int, heads: int, length: int, limit: int) -> None:
    random = np.random.default_rng(0)
    noise = random.uniform(size=(layers, heads, length, length)).astype(np.float32)
    attention = viewed(["long" * 1000] * length, ["long" * 1000] * length, list(noise))
    assert len(text_figure(attention, title="t")) < limit


def pointed(*attention: AttentionLine) -> np.ndarray:
    weights = np.zeros((3, 5))
    for query, key, weight in attention:
        weights[query, key] = weight
    return weights


def test_small_weights_have_no_line_and_large_ones_are_on_top() -> None:
    expected = [AttentionLine(2, 0, 0.02), AttentionLine(1, 4, 0.3), AttentionLine(0, 3, 0.9)]
    attention = attention_lines(pointed(*expected, AttentionLine(0, 0, 0.0199)))
    assert attention == (expected, "every weight of at least 0.02")
    diffuse = attention_lines(np.full((3, 5), 0.19))
    assert diffuse == ([], "no weight: the largest is 0.19, below 0.2")
    drawn, caption = attention_lines(np.ones((3, 5)))
    assert len(drawn) == LINES_PER_QUERY * 3
    assert caption == "the largest 12 of 15 weights of at least 0.5"


@given(st.integers(0, 2**32 - 1), st.floats(0.02, 20))
def test_the_threshold_separates_drawn_weights(seed: int, evenness: float) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.full(5, evenness), size=3).round(4)
    drawn = {(line.query, line.key) for line in attention_lines(weights)[0]}
    reached = [t for t in THRESHOLDS if (weights >= t).sum() <= LINES_PER_QUERY * 3]
    threshold = reached[0] if reached else 0.5
    assert drawn == set(zip(*np.nonzero(weights >= threshold), strict=True))


def test_lines_run_from_the_query_to_the_key() -> None:
    weights = pointed(AttentionLine(2, 4, 0.25), AttentionLine(1, 0, 0.64))
    sides = figure(maps(weights[None, None])).find("div", "sides")
    assert sides.find("svg").attributes["viewbox"] == "0 0 100 5"
    names = ("d", "stroke-opacity", "stroke-width", "class")
    drawn = [[path.attributes.get(name) for name in names] for path in sides.find_all("path")]
    assert drawn[0] == ["M0 2.5L100 4.5", "0.50", "1.50", "selected"]
    assert drawn[1:] == [["M0 1.5L100 0.5", "0.80", "2.28", None]]


def test_labels_are_beside_their_row_and_column() -> None:
    drawn = text_drawing(maps(diagonal(QUERIES, KEYS)), "a title")
    large, _, *small = [mark for mark in drawn.marks if isinstance(mark, Heatmap)]
    labels = {mark.text: mark for mark in drawn.marks if isinstance(mark, Label)}
    assert {"a title", "L2.H3", "L1", "L2", "H1", "H3"} <= set(labels)
    assert drawn.description == "L2.H3: ‘q4’ attends most to ‘k5’ (1.00)"
    assert len(small) == LAYERS * HEADS
    np.testing.assert_array_equal(large.weights, diagonal(QUERIES, KEYS)[1, 2])
    np.testing.assert_array_equal(small[1].weights, diagonal(QUERIES, KEYS)[0, 1])
    for i in range(QUERIES):
        label = labels[f"q{i}"]
        assert label.x < large.x and label.anchor == "end"
        assert label.y - 4 == pytest.approx(large.y + (i + 0.5) * large.height / QUERIES)
    for i in range(KEYS):
        label = labels[f"k{i}"]
        assert label.y < large.y and label.rotated
        assert label.x - 4 == pytest.approx(large.x + (i + 0.5) * large.width / KEYS)


@pytest.mark.parametrize("count", [2, 61, 331, 1021])
def test_labels_never_overlap_and_the_notes_say_what_is_left_out(count: int) -> None:
    drawn = text_drawing(maps(diagonal(count, count)), "t")
    large, _, *small = [mark for mark in drawn.marks if isinstance(mark, Heatmap)]
    labels = [mark for mark in drawn.marks if isinstance(mark, Label)]
    assert large.width == large.height <= 900
    columns = sorted(label.x for label in labels if label.rotated)
    rows = sorted(
        label.y for label in labels if label.anchor == "end" and label.y < large.y + large.height
    )
    for places in (rows, columns):
        assert len(places) >= min(count, 41)
        assert min(np.diff(places)) >= 13.9
    text = " ".join(label.text for label in labels)
    assert ("largest weight of 4 × 4 tokens" in text) == (count == 1021)
    assert ("Not every token has a label" in text) == (count > 61)
    for mark in (large, *small):
        assert max(mark.weights.shape) <= 320
        assert mark.x + mark.width <= drawn.width and mark.y + mark.height <= drawn.height


def test_blocks_keep_a_single_large_weight() -> None:
    weights = np.zeros((1, 1, 1021, 1021))
    weights[0, 0, 700, 300] = 1.0
    drawn = text_drawing(maps(weights), "t")
    large, _, small = [mark for mark in drawn.marks if isinstance(mark, Heatmap)]
    for mark in (large, small):
        (place,) = np.argwhere(mark.weights == 1)
        np.testing.assert_allclose(place / len(mark.weights), [700 / 1021, 300 / 1021], atol=0.02)
