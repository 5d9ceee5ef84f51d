"""Tag metrics by hand and by slow counts."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.tagging import Confusion, confusions, tag_accuracy, tag_scores

pairs_of_tags = st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from("ABCE")), max_size=30)


def test_words_count_and_sentences_are_kept_apart() -> None:
    sample = tag_accuracy([["A", "B", "A"], ["B"]], [["A", "A", "A"], ["B"]])
    assert sample.counts.tolist() == [[2, 3], [1, 1]]
    assert sample.value == 3 / 4  # not the mean of 2/3 and 1
    among = [[True, True, False], [False]]
    some = tag_accuracy([["A", "B", "A"], ["B"]], [["A", "A", "A"], ["B"]], among)
    assert some.counts.tolist() == [[1, 2], [0, 0]]


@pytest.mark.parametrize("predicted", [[["A"]], [["A", "B", "A"], ["B"]], [["A", "B"], ["B", "B"]]])
def test_every_word_has_its_tag(predicted: list[list[str]]) -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tag_accuracy([["A", "B"], ["B"]], predicted)


@given(pairs_of_tags, st.integers(0, 7))
def test_confusions_are_the_most_frequent_errors(pairs: list[tuple[str, str]], limit: int) -> None:
    expected = [tag for tag, _ in pairs]
    wrong = {pair for pair in pairs if pair[0] != pair[1]}
    ranked = sorted(wrong, key=lambda pair: (-pairs.count(pair), pair))
    assert confusions(Counter(pairs), limit) == [
        Confusion(*pair, pairs.count(pair), pairs.count(pair) / expected.count(pair[0]))
        for pair in ranked[:limit]
    ]


@given(pairs_of_tags)
def test_scores_equal_a_slow_loop(pairs: list[tuple[str, str]]) -> None:
    expected, output = [a for a, _ in pairs], [b for _, b in pairs]
    result = tag_scores(Counter(zip(expected, output, strict=True)))
    assert [score.tag for score in result] == sorted({*expected, *output})
    for score in result:
        right = sum(pair == (score.tag, score.tag) for pair in pairs)
        given, reference = output.count(score.tag), expected.count(score.tag)
        assert score.words == reference
        assert score.precision == (right / given if given else 0.0)
        assert score.recall == (right / reference if reference else 0.0)
        if right:
            mean = 2 / (1 / score.precision + 1 / score.recall)
            assert score.f1 == pytest.approx(mean)
        else:
            assert score.f1 == 0.0
