"""Figures of alignments by hand, by fractions of sets, and links by slow loops."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.data.links import GoldLinks
from harken.measure.alignment import (
    above,
    alignment_samples,
    best_of,
    chosen_elsewhere,
    diagonal,
    grown,
    link_counts,
    looked_at_most,
    looked_most,
    over_words,
)

LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 6)))


def gold(sure: set[tuple[int, int]], possible: set[tuple[int, int]]) -> GoldLinks:
    return GoldLinks(frozenset(sure), frozenset(sure | possible))


def figures(found: list[frozenset[tuple[int, int]]], wanted: list[GoldLinks]) -> dict[str, float]:
    return {name: one.value for name, one in alignment_samples(found, wanted).items()}


def test_by_hand() -> None:
    """A of 3, S of 2, P of 4: |A and S| = 1, |A and P| = 2, so AER = 1 - 3/5."""
    wanted = gold({(0, 0), (1, 1)}, {(1, 2), (2, 2)})
    found = figures([frozenset({(0, 0), (1, 2), (2, 0)})], [wanted])
    assert found == pytest.approx({"aer": 1 - 3 / 5, "precision": 2 / 3, "recall": 1 / 2})


def test_a_corpus_is_counted_together_not_averaged() -> None:
    """(1 + 1 + 0 + 1) / (1 + 1 + 3 + 2) over two pairs; the mean of both AER would be 0.4."""
    wanted = [gold({(0, 0)}, set()), gold({(0, 0), (1, 1)}, {(2, 2)})]
    found = figures([frozenset({(0, 0)}), frozenset({(2, 2), (0, 1), (1, 0)})], wanted)
    assert found == pytest.approx({"aer": 1 - 3 / 7, "precision": 2 / 4, "recall": 1 / 3})


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=5))
def test_against_fractions_of_sets(rows: list[tuple[frozenset[tuple[int, int]], ...]]) -> None:
    wanted = [GoldLinks(sure, sure | possible) for _, sure, possible in rows]
    found = figures([links for links, _, _ in rows], wanted)
    # All pairs as one set, each link with the number of its pair.
    a = {(n, link) for n, (links, _, _) in enumerate(rows) for link in links}
    s = {(n, link) for n, one in enumerate(wanted) for link in one.sure}
    p = {(n, link) for n, one in enumerate(wanted) for link in one.possible}
    if a or s:
        error = 1 - Fraction(len(a & s) + len(a & p), len(a) + len(s))
        assert found["aer"] == pytest.approx(float(error), abs=1e-12)
    if a:
        assert found["precision"] == pytest.approx(len(a & p) / len(a))
    if s:
        assert found["recall"] == pytest.approx(len(a & s) / len(s))


@given(LINKS, LINKS)
def test_all_that_is_sure_with_some_that_is_possible_is_no_error(
    sure: frozenset[tuple[int, int]], possible: frozenset[tuple[int, int]]
) -> None:
    assert figures([sure | possible], [GoldLinks(sure, sure | possible)])["aer"] == 0


def test_words_sum_over_source_tokens_and_average_over_target_tokens() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(7), size=5)
    target, source = [0, 0, 1, 2, 2], [0, 1, 1, 1, 2, 3, 3]
    found = over_words(weights, target, source)
    assert found.shape == (3, 4)
    for word in range(3):
        for other in range(4):
            rows = [i for i, one in enumerate(target) if one == word]
            columns = [j for j, one in enumerate(source) if one == other]
            wanted = sum(weights[i, j] for i in rows for j in columns) / len(rows)
            assert found[word, other] == pytest.approx(wanted, abs=1e-12)
    assert found.sum(axis=1) == pytest.approx(1)


def test_both_directions_and_a_threshold() -> None:
    weights = np.array([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4]])  # two target words, three of the source
    assert looked_most(weights) == {(0, 0), (0, 1)}
    assert looked_at_most(weights) == {(0, 0), (1, 0), (2, 1)}
    assert above(weights, 0.3) == {(0, 0), (1, 0), (0, 1), (2, 1)}
    assert above(weights, 0.9) == set()


def test_growing_by_hand() -> None:
    one = frozenset({(0, 0), (1, 1), (2, 1), (4, 4)})
    other = frozenset({(0, 0), (1, 2), (5, 0)})
    # (0, 0) is in both; (1, 1) touches it; (1, 2) and (2, 1) touch that, each with a new word; no
    # neighbour leads on. (4, 4) is alone on both sides, and the source word of (5, 0) on its own.
    assert grown(one, other) == {(0, 0), (1, 1), (1, 2), (2, 1), (4, 4), (5, 0)}
    # Both words of (0, 1) have links by then.
    assert grown(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (0, 1)})) == {
        (0, 0),
        (1, 1),
    }


@given(LINKS, LINKS)
def test_growing_stays_between_both_and_either(
    one: frozenset[tuple[int, int]], other: frozenset[tuple[int, int]]
) -> None:
    found = grown(one, other)
    assert one & other <= found <= one | other
    # No word that a direction links is left without a link.
    for side in (0, 1):
        assert {link[side] for link in found} == {link[side] for link in one | other}


def test_a_diagonal_keeps_within_both_sentences() -> None:
    assert diagonal(3, 3) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal(4, 2) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert diagonal(2, 5) == {(0, 0), (2, 1)}


def test_the_best_is_of_the_whole_and_its_honest_figure_of_the_other_half() -> None:
    wanted = [gold({(0, 0)}, set())] * 4
    right, wrong = frozenset({(0, 0)}), frozenset({(0, 1)})
    counts = {
        "even": link_counts([right, wrong, right, wrong], wanted),
        "odd": link_counts([wrong, right, wrong, wrong], wanted),
    }
    assert best_of(counts) == "even"
    # Even pairs are measured by what is best on the odd ones, and the other way about.
    mixed = chosen_elsewhere(counts)
    assert np.array_equal(mixed[0::2], counts["odd"][0::2])
    assert np.array_equal(mixed[1::2], counts["even"][1::2])


def test_intervals_hold_the_value() -> None:
    random = np.random.default_rng(0)
    wanted = [gold({(0, 0)}, {(1, 1)})] * 60
    found = [frozenset({(0, int(one))}) for one in random.integers(0, 2, size=60)]
    for sample in alignment_samples(found, wanted).values():
        estimate = sample.estimate()
        assert estimate.low < estimate.value < estimate.high
