import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.report.attention_lines import (
    LINES_A_QUERY,
    THRESHOLDS,
    Link,
    lines_figure,
    links,
    short,
)

from .parsed import parse
from .test_escaping import HOSTILE, INVISIBLE

QUERIES, KEYS = 3, 5


def pointed(*found: Link) -> np.ndarray:
    weights = np.zeros((QUERIES, KEYS))
    for query, key, weight in found:
        weights[query, key] = weight
    return weights


def test_weak_weights_have_no_line_and_strong_ones_lie_on_top() -> None:
    wanted = (Link(2, 0, 0.02), Link(1, 4, 0.3), Link(0, 3, 0.9))
    found = links(pointed(*wanted, Link(0, 0, 0.0199)))
    assert found.drawn == wanted
    assert found.sentence == "a line for every weight of at least 0.02"


def test_a_diffuse_head_has_no_line_and_the_sentence_says_why() -> None:
    found = links(np.full((QUERIES, KEYS), 1 / KEYS - 0.01))
    assert found.drawn == ()
    assert found.sentence == "no line: the largest weight is 0.19, below 0.2"


def test_more_than_has_room_is_counted() -> None:
    found = links(np.ones((QUERIES, KEYS)))  # as the largest weights of blocks may be
    assert len(found.drawn) == LINES_A_QUERY * QUERIES
    assert found.sentence == "the strongest 12 of 15 weights of at least 0.5"


@given(st.integers(0, 2**32 - 1), st.floats(0.02, 20))
def test_the_threshold_parts_what_is_drawn_from_what_is_not(seed: int, evenness: float) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.full(KEYS, evenness), size=QUERIES)
    found = links(weights)
    drawn = {(one.query, one.key) for one in found.drawn}
    at_least = {
        (i, j)
        for i in range(QUERIES)
        for j in range(KEYS)
        if round(weights[i, j], 4) >= found.threshold
    }
    assert drawn == at_least
    lower = [least for least in THRESHOLDS if least < found.threshold]
    assert all(np.sum(np.round(weights, 4) >= least) > LINES_A_QUERY * QUERIES for least in lower)


def test_lines_run_from_the_query_to_the_key() -> None:
    tokens = [f"q{i}" for i in range(QUERIES)], [f"k{i}" for i in range(KEYS)]
    figure = parse(lines_figure(*tokens, pointed(Link(2, 4, 0.25), Link(1, 0, 0.64)), "head 7"))
    assert figure.one("svg").attributes["viewbox"] == "0 0 100 5"
    assert [path.attributes for path in figure.all("path")] == [
        {"class": "taken", "d": "M0 2.5L100 4.5", "stroke-opacity": "0.50", "stroke-width": "1.50"},
        {"d": "M0 1.5L100 0.5", "stroke-opacity": "0.80", "stroke-width": "2.28"},
    ]
    assert figure.one("b", "name").text == "head 7"
    assert [item.text for item in figure.one("ol", "from").all("li")] == tokens[0]
    assert [item.text for item in figure.one("ol", "to").all("li")] == tokens[1]


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("a" * 16, "a" * 16),
        ("a" * 17, "a" * 15 + "…"),
        ("中" * 8, "中" * 8),
        ("中" * 9, "中" * 7 + "…"),
        ("e\u0301" * 16, "e\u0301" * 16),
        ("e" + "\u0301" * 100, "e" + "\u0301" * 63 + "…"),
    ],
)
def test_long_labels_are_cut(raw: str, wanted: str) -> None:
    assert short(raw) == wanted


@pytest.mark.parametrize("raw", [*HOSTILE, *INVISIBLE])
def test_hostile_tokens_stay_text(raw: str) -> None:
    html = lines_figure([raw], [raw], np.ones((1, 1)), raw)
    elements = {"div", "p", "b", "span", "ol", "li", "bdi", "i", "svg", "path"}

    def tags(found: object) -> set[str]:
        return {child.tag for child in found.children}.union(  # type: ignore[attr-defined]
            *map(tags, found.children)  # type: ignore[attr-defined]
        )

    assert tags(parse(html)) <= elements
    html.encode("utf-8")
