import base64
import zlib

import numpy as np
import pytest

from harken.report.heatmap import AttentionMaps, attention_figure, condensed, sharpest
from harken.report.palette import picture

from .parsed import Element, parse

# Distinct primes: a swapped axis cannot pass by luck.
LAYERS, HEADS, QUERIES, KEYS = 2, 3, 5, 7


def maps(**changes: object) -> AttentionMaps:
    weights = np.random.default_rng(0).dirichlet(np.ones(KEYS), size=(LAYERS, HEADS, QUERIES))
    given: dict[str, object] = {
        "query_tokens": [f"q{i}" for i in range(QUERIES)],
        "key_tokens": [f"k{i}" for i in range(KEYS)],
        "layers": list(weights),
    }
    return AttentionMaps(**(given | changes))  # type: ignore[arg-type]


def figure(found: AttentionMaps, chosen: tuple[int, int] | None = None) -> Element:
    return parse(attention_figure(found, title="t", note="n", chosen=chosen))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": [np.zeros((HEADS, KEYS, QUERIES))]}, r"layer 1: weights of shape \(3, 7, 5\)"),
        ({"layers": [np.zeros((QUERIES, KEYS))]}, "expected .heads, 5 queries, 7 keys"),
        ({"layers": [np.zeros((0, QUERIES, KEYS))]}, "layer 1"),
        ({"layers": [np.full((1, QUERIES, KEYS), 1.01)]}, "outside 0..1"),
        ({"layers": [np.full((1, QUERIES, KEYS), -0.01)]}, "outside 0..1"),
        ({"layers": [np.full((1, QUERIES, KEYS), np.nan)]}, "NaN"),
        ({"layers": []}, "at least one"),
        ({"query_tokens": []}, "at least one"),
        ({"layer_names": ["only one"]}, "1 names for 2 layers"),
    ],
)
def test_wrong_maps_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        maps(**changes)


def test_half_precision_is_accepted() -> None:
    weights = np.full((1, QUERIES, KEYS), 1.0, dtype=np.float16) * np.float16(1.0005)
    assert "1.00" in attention_figure(maps(layers=[weights]), title="t")


def test_sharpest_is_the_head_whose_last_query_spreads_least() -> None:
    weights = np.full((LAYERS, HEADS, QUERIES, KEYS), 1 / KEYS)
    weights[0, 1, 0] = np.eye(KEYS)[3]  # sharper, but not the last query
    weights[1, 2, -1] = [0.4, 0.6, 0, 0, 0, 0, 0]
    assert sharpest(maps(layers=list(weights))) == (1, 2)


def test_every_head_is_there_with_its_own_picture() -> None:
    found = maps()
    smalls = figure(found).all("span", "small")
    assert [small.attributes["data-name"] for small in smalls] == [
        f"L{i + 1}.H{j + 1}" for i in range(LAYERS) for j in range(HEADS)
    ]
    for small in smalls:
        layer, head = int(small.attributes["data-layer"]), int(small.attributes["data-head"])
        wanted = parse(picture(found.layers[layer][head], alt="")).one("img").attributes["src"]
        assert small.one("img").attributes["src"] == wanted


def test_packed_weights_are_exact_to_four_decimals() -> None:
    found = maps()
    for small in figure(found).all("span", "small"):
        layer, head = int(small.attributes["data-layer"]), int(small.attributes["data-head"])
        packed = zlib.decompress(base64.b64decode(small.attributes["data-weights"]))
        weights = np.frombuffer(packed, "<u2").reshape(QUERIES, KEYS) / 10_000
        np.testing.assert_allclose(weights, found.layers[layer][head], rtol=0, atol=0.5001e-4)


def test_layers_may_differ_in_heads_and_have_names() -> None:
    layers = [np.full((heads, QUERIES, KEYS), 1 / KEYS) for heads in (1, 3)]
    found = figure(maps(layers=layers, layer_names=["encoder", "cross"]))
    overview = found.one("div", "overview")
    assert [th.text for th in overview.one("tbody").all("th")] == ["encoder", "cross"]
    assert [len(tr.all("td")) for tr in overview.one("tbody").all("tr")] == [3, 3]
    assert [len(tr.all("img")) for tr in overview.one("tbody").all("tr")] == [1, 3]
    assert [th.text for th in overview.one("thead").all("th")] == ["H1", "H2", "H3"]


def test_the_chosen_head_is_drawn_large_read_and_striped() -> None:
    weights = np.full((LAYERS, HEADS, QUERIES, KEYS), 1 / KEYS)
    weights[0, 1, -1] = [0, 0.02, 0, 0.83, 0.15, 0, 0]
    found = maps(layers=list(weights))
    for shown in (figure(found), figure(found, chosen=(0, 1))):
        assert shown.one("span", "chosen").attributes["data-name"] == "L1.H2"
        assert shown.one("p", "reading").text == "‘q4’ looks most at ‘k3’ with 0.83"
        large = parse(picture(weights[0, 1], alt="")).one("img").attributes["src"]
        assert shown.one("div", "cells").one("img").attributes["src"] == large
        head, mean = shown.one("dd", "head"), shown.one("dd", "mean")
        assert [s.text for s in head.all("small")] == ["", "", "", "0.83", "0.15", "", ""]
        # (0.83 + 2/7) / 3, and so on
        assert [s.text for s in mean.all("small")][1:5] == ["0.10", "0.10", "0.37", "0.15"]
        assert head.all("span")[3].attributes["style"] == "--w:0.911"
        strongest = shown.one("details").one("tbody").all("tr")
        assert [td.text for td in strongest[-1].all("td")] == ["q4", "k3", "0.83"]


def test_a_head_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no head 3 in layer 0"):
        figure(maps(), chosen=(0, HEADS))


def test_two_hundred_tokens_stay_affordable() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=(8, 200, 200))
    weights = np.tril(np.exp(scores))
    weights /= weights.sum(axis=-1, keepdims=True)
    tokens = [f"w{i}" for i in range(200)]
    found = AttentionMaps(query_tokens=tokens, key_tokens=tokens, layers=[weights])
    assert len(attention_figure(found, title="t")) < 700_000


def test_a_long_text_is_shown_in_blocks_and_the_caption_says_so() -> None:
    weights = np.zeros((1, 1, 5, 1021))
    weights[..., 300] = 1.0
    keys = [f"k{i}" for i in range(1021)]
    shown = figure(maps(layers=list(weights), key_tokens=keys))
    assert shown.one("figcaption").text == (
        "t n 5 queries and 1\u202f021 keys: each square is the largest weight of 1 × 4 tokens. "
        "In L1.H1, ‘q4’ looks most at ‘k300’ with 1.00."
    )
    assert [item.text for item in shown.one("ol", "queries").all("li")] == list(maps().query_tokens)
    named = [item.text for item in shown.one("ol", "keys").all("li")]
    assert len(named) == 256 and named[75] == "301 k300 …"
    assert shown.one("p", "reading").text == "‘q4’ looks most at ‘301 k300 …’ with 1.00"
    assert shown.one("dd", "head").attributes["tabindex"] == "0"


def test_condensed_weights_are_the_largest_of_their_block() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(KEYS), size=(HEADS, QUERIES))
    found = condensed(maps(layers=[weights]), 3).layers[0]
    for head in range(HEADS):
        for i in range(3):
            for j in range(3):
                wanted = max(weights[head, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3].flatten())
                assert found[head, i, j] == wanted
    assert found.shape == (HEADS, 3, 3)


@pytest.mark.parametrize(("layers", "heads", "length"), [(1, 1, 4096), (12, 12, 128)])
def test_the_page_stays_affordable(layers: int, heads: int, length: int) -> None:
    random = np.random.default_rng(0)
    noise = [random.uniform(size=(heads, length, length)).astype(np.float32) for _ in range(layers)]
    tokens = ["long" * 1000] * length
    found = AttentionMaps(query_tokens=tokens, key_tokens=tokens, layers=noise)
    assert len(attention_figure(found, title="t")) < 12_000_000
