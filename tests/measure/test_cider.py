"""Against the authors' own scorers, dense vectors written from the paper's formula, and by hand."""

from math import exp, log

import numpy as np
import pytest
from coco_captions import CIDER, PICTURES
from hypothesis import example, given
from hypothesis import strategies as st

from harken.measure.captions import Cider, caption_words, cider

Words = list[str]
CAPTIONS = st.lists(st.sampled_from("abcd"), max_size=7)
CORPORA = st.lists(
    st.tuples(CAPTIONS, st.lists(CAPTIONS, min_size=1, max_size=3)), min_size=1, max_size=5
)


def test_values_are_those_of_the_authors() -> None:
    captions = [caption_words(caption) for caption, _ in PICTURES]
    references = [[caption_words(one) for one in own] for _, own in PICTURES]
    for found, wanted in zip(cider(captions, references), CIDER, strict=True):
        assert found == pytest.approx(wanted, abs=1e-12)


def by_dense_vectors(captions: list[Words], references: list[list[Words]]) -> list[Cider]:
    """Equations 1 to 4 of arXiv 1411.5726 over vectors of every sequence that occurs anywhere."""

    def pieces(words: Words, order: int) -> list[str]:
        return ["".join(words[at : at + order]) for at in range(len(words) - order + 1)]

    totals = np.zeros((len(captions), 2))
    for order in range(1, 5):
        everyone = [*captions, *(one for own in references for one in own)]
        axes = sorted({piece for words in everyone for piece in pieces(words, order)})

        def vector(words: Words, order: int = order, axes: list[str] = axes) -> np.ndarray:
            return np.array([float(pieces(words, order).count(axis)) for axis in axes])

        having = sum(np.max([vector(one) > 0 for one in own], axis=0) for own in references)
        rarity = np.log(len(captions) / np.maximum(having, 1.0))
        for total, caption, own in zip(totals, captions, references, strict=True):
            for reference in own:
                a, b = vector(caption) * rarity, vector(reference) * rarity
                below = np.linalg.norm(a) * np.linalg.norm(b)
                if below > 0:
                    near = exp(-((len(caption) - len(reference)) ** 2) / 72)
                    parts = (a @ b, near * (np.minimum(a, b) @ b))
                    total += 10 / 4 * np.array(parts) / below / len(own)
    return [Cider(*total) for total in totals.tolist()]


@given(CORPORA)
@example([([], [[]])])
@example([(["a"], [["a"]]), ([], [["b"], []])])
def test_values_are_those_of_the_formula(pairs: list[tuple[Words, list[Words]]]) -> None:
    captions, references = [one for one, _ in pairs], [own for _, own in pairs]
    wanted = by_dense_vectors(captions, references)
    for found, expected in zip(cider(captions, references), wanted, strict=True):
        assert found == pytest.approx(expected, abs=1e-9)


def test_by_hand() -> None:
    """Two pictures: "the" is in both and weighs 0; dog and cat, runs and sits weigh log 2 each."""
    references = [[["the", "dog", "runs"]], [["the", "cat", "sits"]]]
    found, other = cider([["the", "dog", "dog"], ["the", "cat", "sits"]], references)
    two = log(2)
    # Words: (2, 0) against (1, 1), of which 1 counts when clipped.
    plain = [2 * two**2 / (2 * two * 2**0.5 * two)]
    clipped = [1 * two**2 / (2 * two * 2**0.5 * two)]
    # Pairs: "the dog", "dog dog" against "the dog", "dog runs". No three words in a row match.
    for values in (plain, clipped):
        values += [two**2 / (2 * two**2), 0.0, 0.0]
    assert found == pytest.approx(Cider(10 * sum(plain) / 4, 10 * sum(clipped) / 4))
    # The same words are 1 in three orders; of four words in a row there are none to compare.
    assert other == pytest.approx(Cider(7.5, 7.5))


def test_a_rare_word_again_and_again_pays_only_without_clipping() -> None:
    references = [[["a", "red", "fox"]], [["a", "dog"]], [["a", "cat"]]]
    once, often = (cider([["fox"] * times, [], []], references)[0] for times in (1, 11))
    assert often.plain == pytest.approx(once.plain)
    assert often.d < 0.1 * once.d


def test_what_every_picture_has_says_nothing() -> None:
    assert cider([["a", "dog"]], [[["a", "dog"]]]) == [Cider(0.0, 0.0)]
    assert cider([["a"], ["a"]], [[["a"]], [["a", "b"]]])[1] == Cider(0.0, 0.0)
