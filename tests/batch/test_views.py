"""Views against loops over lists, and what they promise of every text."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.corruption import CorruptionConfig
from harken.batch.padding import TokenBatch, next_token_batch
from harken.batch.views import Documents, ViewsConfig, draw_views, hide, shuffle, turn

from .lists import documents, from_lists, numbers, to_lists

MASK = 97  # in no document
seeds = st.integers(0, 2**32)


def with_heads(sequences: list[list[int]], data: st.DataObject) -> Documents:
    heads = [data.draw(st.integers(0, len(one))) for one in sequences]
    return Documents(from_lists(sequences), numbers(heads))


@given(documents, seeds, st.data())
def test_turning_keeps_the_head_and_every_token(
    sequences: list[list[int]], seed: int, data: st.DataObject
) -> None:
    shown = with_heads(sequences, data)
    turned = to_lists(turn(shown, 1000, np.random.default_rng(seed)))
    for before, head, after in zip(sequences, shown.heads, turned, strict=True):
        rest = before[head:]
        rotations = [rest[at:] + rest[:at] for at in range(max(1, len(rest)))]
        assert after[:head] == before[:head]
        assert after[head:] in rotations


def test_every_place_follows_the_head_equally_often() -> None:
    text, head, count = list(range(13)), 3, 5000
    shown = Documents(from_lists([text] * count), np.full(count, head))
    turned = to_lists(turn(shown, 13, np.random.default_rng(5)))
    after_head = np.bincount([one[head] for one in turned], minlength=13)
    assert after_head[:head].sum() == 0
    # Five standard deviations of a binomial count around 500.
    assert np.abs(after_head[head:] - count / 10).max() < 5 * (count * 0.1 * 0.9) ** 0.5


def test_a_long_text_is_seen_through_a_window() -> None:
    shown = Documents(from_lists([list(range(50))]), numbers([4]))
    (seen,) = to_lists(turn(shown, 11, np.random.default_rng(0)))
    assert seen[:4] == [0, 1, 2, 3]
    steps = np.diff(seen[4:])
    assert len(seen) == 11
    assert set(steps.tolist()) <= {1, 4 - 49}  # on, or round the end to the first behind the head


def test_a_head_longer_than_the_window() -> None:
    shown = Documents(from_lists([list(range(9))]), numbers([7]))
    assert to_lists(turn(shown, 5, np.random.default_rng(0))) == [[0, 1, 2, 3, 4]]


@given(documents, seeds, st.data())
def test_one_view_of_each(sequences: list[list[int]], seed: int, data: st.DataObject) -> None:
    corrupted = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    turned = data.draw(st.sampled_from([0.0, 0.5])) if corrupted < 1 else 0.0
    config = ViewsConfig(
        corrupted=corrupted, rotated=turned, span=CorruptionConfig(min_ratio=0.1, max_ratio=0.5)
    )
    shown = with_heads(sequences, data)
    views = to_lists(draw_views(shown, config, 1000, MASK, np.random.default_rng(seed)).texts)
    # Nothing is lost and nothing told twice: without the masks, the same tokens in some order.
    without = sorted(sorted(token for token in one if token != MASK) for one in views)
    assert without == sorted(sorted(one) for one in sequences)
    holes = sum(MASK in one for one in views)
    assert holes == 0 if corrupted == 0 else holes == len(sequences) or corrupted < 1


def test_shares_of_views() -> None:
    text, count = list(range(20)), 4000
    shown = Documents(from_lists([text] * count), np.full(count, 2))
    config = ViewsConfig(corrupted=0.2, rotated=0.5)
    views = to_lists(draw_views(shown, config, 20, MASK, np.random.default_rng(1)).texts)
    holed = sum(MASK in one for one in views) / count
    whole = sum(one == text for one in views) / count
    assert abs(holed - 0.2) < 0.04
    assert abs(whole - (0.3 + 0.5 / 18)) < 0.04  # one turn in 18 leaves all in place


def test_no_more_than_all() -> None:
    with pytest.raises(ValueError, match="more than all texts"):
        ViewsConfig(corrupted=0.7, rotated=0.4)


@given(documents, seeds, st.data())
def test_shuffling_moves_pieces_and_loses_nothing(
    sequences: list[list[int]], seed: int, data: st.DataObject
) -> None:
    shown = with_heads(sequences, data)
    shuffled = to_lists(shuffle(shown, 2.0, 1000, MASK, np.random.default_rng(seed)))
    for before, head, after in zip(sequences, shown.heads, shuffled, strict=True):
        assert after[:head] == before[:head]
        pieces = split_at(after[head:], MASK)
        assert pieces[0] == [] and all(pieces[1:])  # a mask before every piece, none empty
        assert sorted(token for one in pieces for token in one) == sorted(before[head:])
        rest = before[head:]
        assert all(
            any(rest[at : at + len(one)] == one for at in range(len(rest))) for one in pieces[1:]
        )


def split_at(tokens: list[int], mark: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == mark:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def test_pieces_are_as_long_as_asked_for_and_in_any_order() -> None:
    text, head, count = list(range(67)), 7, 400
    shown = Documents(from_lists([text] * count), np.full(count, head))
    shuffled = to_lists(shuffle(shown, 5.0, 1000, MASK, np.random.default_rng(3)))
    pieces = [split_at(one[head:], MASK)[1:] for one in shuffled]
    mean = count * 60 / sum(map(len, pieces))
    assert 4.5 < mean < 5.0  # the first piece of a text may not grow to the left of it
    firsts = [one[0][0] for one in pieces]
    assert min(firsts) == head and max(firsts) > 60
    assert 20 < np.mean(firsts) < 45  # the beginnings of pieces lie evenly over the rest
    cut = to_lists(shuffle(shown, 5.0, 23, MASK, np.random.default_rng(3)))
    assert cut == [one[:23] for one in shuffled]


def hidden(share: float, heads: list[int]) -> tuple[TokenBatch, TokenBatch]:
    sequences = from_lists([list(range(1, 90)), list(range(1, 60))])
    plain = next_token_batch(sequences, numbers([1, 1]), 0)
    return plain, hide(plain, numbers(heads), share, MASK, np.random.default_rng(2))


def test_hiding_changes_what_is_told_and_not_what_is_wanted() -> None:
    plain, half = hidden(0.5, [3, 11])
    assert torch.equal(plain.targets, half.targets)
    changed = plain.inputs != half.inputs
    assert (half.inputs[changed] == MASK).all()
    assert not changed[0, :3].any() and not changed[1, :11].any()
    assert 0.35 < changed[0, 3:].float().mean() < 0.65
    assert 0.35 < changed[1, 11:].float().mean() < 0.65


def test_a_head_as_long_as_its_row_hides_nothing() -> None:
    plain, all_head = hidden(0.9, [100, 100])
    assert torch.equal(plain.inputs, all_head.inputs)


def test_only_what_is_not_corrupted_has_a_head_to_hide_behind() -> None:
    shown = Documents(from_lists([list(range(20))] * 50), np.full(50, 2))
    config = ViewsConfig(corrupted=0.5, rotated=0.5)
    seen = draw_views(shown, config, 20, MASK, np.random.default_rng(1))
    for view, head in zip(to_lists(seen.texts), seen.heads, strict=True):
        assert head == (len(view) if MASK in view else 2)
