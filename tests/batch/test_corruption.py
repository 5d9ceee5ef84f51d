import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.corruption import CorruptionConfig, corrupt_spans, cut_windows, move_spans

from .lists import documents, from_lists, numbers, to_lists

MASK = 97  # in no document
seeds = st.integers(0, 2**32)


def parts(corrupted: list[int]) -> tuple[list[int], list[int], list[int]]:
    """(prefix, span, suffix) of prefix MASK suffix MASK span."""
    first = corrupted.index(MASK)
    second = corrupted.index(MASK, first + 1)
    assert MASK not in corrupted[second + 1 :]
    return corrupted[:first], corrupted[second + 1 :], corrupted[first + 1 : second]


def test_a_hole_by_hand() -> None:
    moved = move_spans(from_lists([[1, 2, 3, 4, 5], [6]]), numbers([1, 0]), numbers([2, 1]), MASK)
    assert to_lists(moved) == [[1, MASK, 4, 5, MASK, 2, 3], [MASK, MASK, 6]]


@given(documents, st.data())
def test_moving_equals_slicing(sequences: list[list[int]], data: st.DataObject) -> None:
    spans = [data.draw(st.integers(0, len(one))) for one in sequences]
    holes = [
        data.draw(st.integers(0, len(one) - span))
        for one, span in zip(sequences, spans, strict=True)
    ]
    moved = move_spans(from_lists(sequences), numbers(holes), numbers(spans), MASK)
    assert to_lists(moved) == [
        [*one[:hole], MASK, *one[hole + span :], MASK, *one[hole : hole + span]]
        for one, hole, span in zip(sequences, holes, spans, strict=True)
    ]


@given(documents, seeds, st.sampled_from([(0.05, 0.45), (0.3, 0.3), (0.01, 0.99)]))
def test_the_text_can_be_put_together_again(
    sequences: list[list[int]], seed: int, shares: tuple[float, float]
) -> None:
    config = CorruptionConfig(min_ratio=shares[0], max_ratio=shares[1])
    random = np.random.default_rng(seed)
    holed = to_lists(corrupt_spans(from_lists(sequences), config, MASK, random))
    assert len(holed) == len(sequences)
    for before, after in zip(sequences, holed, strict=True):
        prefix, span, suffix = parts(after)
        assert prefix + span + suffix == before
        # To the nearest token, but never an empty hole in a text that has a token.
        low, high = (round(share * len(before)) for share in shares)
        assert min(len(before), max(1, low)) <= len(span) <= max(1, high)


def test_holes_are_drawn_evenly() -> None:
    text, count = list(range(89)), 4001
    config = CorruptionConfig(min_ratio=0.1, max_ratio=0.5)
    random = np.random.default_rng(3)
    holed = to_lists(corrupt_spans(from_lists([text] * count), config, MASK, random))
    prefixes, spans, suffixes = np.array([[len(part) for part in parts(one)] for one in holed]).T
    # Four standard errors of a uniform draw, sd = width / sqrt(12).
    error = 4 / np.sqrt(12 * count)
    assert abs(spans.mean() / 89 - 0.3) < 0.4 * error
    assert abs((prefixes / (prefixes + suffixes)).mean() - 0.5) < error
    assert spans.min() == 9
    assert spans.max() == 44  # rint(44.5) is even
    assert prefixes.min() == suffixes.min() == 0


@given(documents, seeds, st.integers(1, 7))
def test_a_window_is_one_stretch(sequences: list[list[int]], seed: int, most: int) -> None:
    cut = to_lists(cut_windows(from_lists(sequences), most, np.random.default_rng(seed)))
    for before, after in zip(sequences, cut, strict=True):
        assert len(after) == min(len(before), most)
        assert any(after == before[start : start + most] for start in range(len(before) + 1))


def test_windows_reach_both_ends_evenly() -> None:
    windows = cut_windows(from_lists([list(range(11))] * 1009), 7, np.random.default_rng(5))
    starts = np.bincount([one[0] for one in to_lists(windows)], minlength=5)
    assert len(starts) == 5  # 0 to 11 - 7
    assert starts.min() > 1009 / 5 - 4 * np.sqrt(1009 * 0.2 * 0.8)


def test_a_hole_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="is below shortest"):
        CorruptionConfig(min_ratio=0.2, max_ratio=0.1)
