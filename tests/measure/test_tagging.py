"""Figures of tags against slow counts over the words themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.measure.tagging import Confusion, confusions, pair_counts, tag_accuracy, tag_scores

pairs_of_tags = st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from("ABCE")), max_size=30)


def test_words_count_and_sentences_are_kept_apart() -> None:
    sample = tag_accuracy([["A", "B", "A"], ["B"]], [["A", "A", "A"], ["B"]])
    assert sample.counts.tolist() == [[2, 3], [1, 1]]
    assert sample.value == 3 / 4  # not the mean of 2/3 and 1


def test_only_some_words() -> None:
    among = [[True, True, False], [False]]
    sample = tag_accuracy([["A", "B", "A"], ["B"]], [["A", "A", "A"], ["B"]], among)
    assert sample.counts.tolist() == [[1, 2], [0, 0]]


@pytest.mark.parametrize("said", [[["A"]], [["A", "B", "A"], ["B"]], [["A", "B"], ["B", "B"]]])
def test_every_word_has_its_tag(said: list[list[str]]) -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tag_accuracy([["A", "B"], ["B"]], said)


def test_confusions_by_hand() -> None:
    expected, said = list("AAAABBBC"), list("ABBCAABC")
    found = confusions(pair_counts(expected, said), limit=2)
    assert found == [Confusion("A", "B", 2, 2 / 4), Confusion("B", "A", 2, 2 / 3)]
    assert confusions(pair_counts(expected, expected), limit=2) == []


@given(pairs_of_tags, st.integers(0, 7))
def test_confusions_are_the_commonest_mistakes(pairs: list[tuple[str, str]], most: int) -> None:
    expected, said = [one for one, _ in pairs], [other for _, other in pairs]
    found = confusions(pair_counts(expected, said), most)
    wrong = {pair for pair in pairs if pair[0] != pair[1]}
    assert len(found) == min(most, len(wrong))
    for one in found:
        assert one.words == pairs.count((one.expected, one.said))
        assert one.share == one.words / expected.count(one.expected)
    left_out = wrong - {(one.expected, one.said) for one in found}
    assert all(pairs.count(pair) <= one.words for pair in left_out for one in found)
    assert [one.words for one in found] == sorted((one.words for one in found), reverse=True)


@given(pairs_of_tags)
def test_scores_equal_a_slow_loop(pairs: list[tuple[str, str]]) -> None:
    expected, said = [one for one, _ in pairs], [other for _, other in pairs]
    found = tag_scores(pair_counts(expected, said))
    assert [one.tag for one in found] == sorted({*expected, *said})
    for one in found:
        right = sum(pair == (one.tag, one.tag) for pair in pairs)
        given, wanted = said.count(one.tag), expected.count(one.tag)
        assert one.words == wanted
        assert one.precision == (right / given if given else 0.0)
        assert one.recall == (right / wanted if wanted else 0.0)
        if right:
            mean = 2 / (1 / one.precision + 1 / one.recall)
            assert one.f1 == pytest.approx(mean)
        else:
            assert one.f1 == 0.0
