"""Alignment metrics by fractions of sets, and links by slow loops."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.formats.links import GoldLinks
from harken.measure.alignment import (
    alignment_samples,
    cross_validated_counts,
    diagonal,
    extract_links,
    grow_diag_final,
    link_counts,
    lowest_aer,
    word_weights,
)

Links = frozenset[tuple[int, int]]
LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 6)))


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=5))
def test_against_fractions_of_sets(rows: list[tuple[Links, ...]]) -> None:
    expected = [GoldLinks(sure, sure | possible) for _, sure, possible in rows]
    samples = alignment_samples(link_counts([links for links, _, _ in rows], expected))
    result = {name: sample.value for name, sample in samples.items()}
    # All pairs as one set, each link with the number of its pair.
    a = {(n, link) for n, (links, _, _) in enumerate(rows) for link in links}
    s = {(n, link) for n, links_ in enumerate(expected) for link in links_.sure}
    p = {(n, link) for n, links_ in enumerate(expected) for link in links_.possible}
    if a or s:
        error = 1 - Fraction(len(a & s) + len(a & p), len(a) + len(s))
        assert result["aer"] == pytest.approx(float(error), abs=1e-12)
    if a:
        assert result["precision"] == pytest.approx(len(a & p) / len(a))
    if s:
        assert result["recall"] == pytest.approx(len(a & s) / len(s))


def test_words_sum_over_source_tokens_and_average_over_target_tokens() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(7), size=5)
    target, source = [0, 0, 1, 2, 2], [0, 1, 1, 1, 2, 3, 3]
    result = word_weights(weights, target, source)
    assert result.shape == (3, 4)
    for word in range(3):
        for other in range(4):
            rows = [i for i, owner in enumerate(target) if owner == word]
            columns = [j for j, owner in enumerate(source) if owner == other]
            expected = sum(weights[i, j] for i in rows for j in columns) / len(rows)
            assert result[word, other] == pytest.approx(expected, abs=1e-12)
    assert result.sum(axis=1) == pytest.approx(1)


def test_both_directions_and_a_threshold() -> None:
    weights = np.array([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4]])  # two target words, three of the source
    by_target, by_source = {(0, 0), (0, 1)}, {(0, 0), (1, 0), (2, 1)}
    expected = {
        "argmax": by_target,
        "intersection": by_target & by_source,
        "union": by_target | by_source,
        "grow-diag-final": grow_diag_final(frozenset(by_target), frozenset(by_source)),
        "threshold": {(0, 0), (1, 0), (0, 1), (2, 1)},
    }
    for method, links in expected.items():
        assert extract_links(weights, method, 0.3) == links
    assert extract_links(weights, "threshold", 0.9) == set()


def published(by_target: Links, by_source: Links) -> Links:
    """GROW-DIAG-FINAL line by line as on Moses' page "Align Words", e the target, f the source.

    Moses' symal keeps its points in a sorted set of (target, source), takes the neighbors in this
    order too, and finishes with the links that each target word has, then those of source words.
    """
    e2f, f2e = ({(e, f) for f, e in links} for links in (by_target, by_source))
    neighboring = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
    alignment = e2f & f2e
    words = range(12)

    def aligned(e_new: int, f_new: int) -> bool:
        return any(e == e_new for e, _ in alignment) and any(f == f_new for _, f in alignment)

    added = True
    while added:
        added = False
        for e in words:
            for f in words:
                if (e, f) not in alignment:
                    continue
                for down, across in neighboring:
                    new = (e + down, f + across)
                    if new in e2f | f2e and not aligned(*new):
                        alignment.add(new)
                        added = True
    for direction in (e2f, f2e):
        for e in words:
            for f in words:
                if (e, f) in direction and not aligned(e, f):
                    alignment.add((e, f))
    return frozenset((f, e) for e, f in alignment)


@st.composite
def directions(draw: st.DrawFn) -> tuple[Links, Links]:
    """A source word for each target word, and a target word for each source word."""
    sources, targets = draw(st.integers(1, 11)), draw(st.integers(1, 11))
    by_target = [(draw(st.integers(0, sources - 1)), t) for t in range(targets)]
    by_source = [(s, draw(st.integers(0, targets - 1))) for s in range(sources)]
    return frozenset(by_target), frozenset(by_source)


@settings(max_examples=400)
@given(directions())
def test_grow_diag_final_is_the_published_one(pair: tuple[Links, Links]) -> None:
    result = grow_diag_final(*pair)
    assert result == published(*pair)
    assert pair[0] & pair[1] <= result <= pair[0] | pair[1]


def test_a_diagonal_keeps_within_both_sentences() -> None:
    assert diagonal(3, 3) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal(4, 2) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert diagonal(2, 5) == {(0, 0), (2, 1)}


def test_the_best_is_of_the_whole_and_its_honest_figure_of_the_other_half() -> None:
    right, wrong = frozenset({(0, 0)}), frozenset({(0, 1)})
    expected = [GoldLinks(right, right)] * 4
    counts = {
        "even": link_counts([right, wrong, right, wrong], expected),
        "odd": link_counts([wrong, right, wrong, wrong], expected),
    }
    assert lowest_aer(counts) == "even"
    # Even pairs are measured by what is best on the odd ones, and the other way about.
    mixed = cross_validated_counts(counts)
    assert np.array_equal(mixed[0::2], counts["odd"][0::2])
    assert np.array_equal(mixed[1::2], counts["even"][1::2])
