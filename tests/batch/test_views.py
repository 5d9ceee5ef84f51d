"""Views against loops over lists."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harken.batch.padding import TokenBatch, next_token_batch
from harken.batch.views import (
    CorruptionConfig,
    TitledTexts,
    ViewsConfig,
    corrupt_spans,
    cut_windows,
    draw_views,
    mask_inputs,
    move_spans,
    rotate_texts,
    shuffle_chunks,
)

from .lists import documents, from_lists, numbers, to_lists

MASK = 97  # in no document
seeds = st.integers(0, 2**32)


def with_titles(sequences: list[list[int]], data: st.DataObject) -> TitledTexts:
    titles = [data.draw(st.integers(0, len(text))) for text in sequences]
    return TitledTexts(from_lists(sequences), numbers(titles))


@given(documents, seeds, st.data())
def test_rotation_keeps_the_title_and_all_tokens(
    sequences: list[list[int]], seed: int, data: st.DataObject
) -> None:
    texts = with_titles(sequences, data)
    rotated = to_lists(rotate_texts(texts, 1000, np.random.default_rng(seed)))
    for before, title, after in zip(sequences, texts.title_lengths, rotated, strict=True):
        rest = before[title:]
        rotations = [rest[shift:] + rest[:shift] for shift in range(max(1, len(rest)))]
        assert after[:title] == before[:title]
        assert after[title:] in rotations


def test_rotations_are_uniform() -> None:
    text, title, count = list(range(13)), 3, 5000
    texts = TitledTexts(from_lists([text] * count), np.full(count, title))
    rotated = to_lists(rotate_texts(texts, 13, np.random.default_rng(5)))
    after_title = np.bincount([view[title] for view in rotated], minlength=13)
    assert after_title[:title].sum() == 0
    # Five standard deviations of a binomial count around 500.
    assert np.abs(after_title[title:] - count / 10).max() < 5 * (count * 0.1 * 0.9) ** 0.5


def test_a_long_text_is_truncated() -> None:
    texts = TitledTexts(from_lists([list(range(50)), list(range(9))]), numbers([4, 20]))
    view, only_title = to_lists(rotate_texts(texts, 11, np.random.default_rng(0)))
    assert view[:4] == [0, 1, 2, 3] and len(view) == 11
    assert set(np.diff(view[4:]).tolist()) <= {1, 4 - 49}  # next, or from the end to the start
    assert only_title == list(range(9))
    texts = TitledTexts(from_lists([list(range(9))]), numbers([7]))
    assert to_lists(rotate_texts(texts, 5, np.random.default_rng(0))) == [[0, 1, 2, 3, 4]]


@given(documents, seeds, st.data())
def test_one_view_of_each_text(sequences: list[list[int]], seed: int, data: st.DataObject) -> None:
    corrupted = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    rotated = data.draw(st.sampled_from([0.0, 0.5])) if corrupted < 1 else 0.0
    span = CorruptionConfig(min_ratio=0.1, max_ratio=0.5)
    config = ViewsConfig(corrupted=corrupted, rotated=rotated, span=span)
    texts = with_titles(sequences, data)
    views = to_lists(draw_views(texts, config, 1000, MASK, np.random.default_rng(seed)).texts)
    # Without the masks, the same tokens in some order.
    tokens = sorted(sorted(token for token in view if token != MASK) for view in views)
    assert tokens == sorted(map(sorted, sequences))
    masked = sum(MASK in view for view in views)
    assert masked == 0 if corrupted == 0 else masked == len(sequences) or corrupted < 1


def test_shares_of_views() -> None:
    text, count = list(range(20)), 4000
    texts = TitledTexts(from_lists([text] * count), np.full(count, 2))
    config = ViewsConfig(corrupted=0.2, rotated=0.5)
    views = to_lists(draw_views(texts, config, 20, MASK, np.random.default_rng(1)).texts)
    corrupted = sum(MASK in view for view in views) / count
    whole = sum(view == text for view in views) / count
    assert abs(corrupted - 0.2) < 0.04
    assert abs(whole - (0.3 + 0.5 / 18)) < 0.04  # one of 18 rotations changes nothing


@given(documents, seeds, st.data())
def test_shuffling_moves_chunks(sequences: list[list[int]], seed: int, data: st.DataObject) -> None:
    texts = with_titles(sequences, data)
    shuffled = to_lists(shuffle_chunks(texts, 2.0, 1000, MASK, np.random.default_rng(seed)))
    for before, title, after in zip(sequences, texts.title_lengths, shuffled, strict=True):
        rest = before[title:]
        assert after[:title] == before[:title]
        empty, *chunks = split_at(after[title:], MASK)
        assert empty == [] and all(chunks)  # a mask before each chunk, none empty
        assert sorted(token for chunk in chunks for token in chunk) == sorted(rest)
        for chunk in chunks:
            assert any(rest[at : at + len(chunk)] == chunk for at in range(len(rest)))


def split_at(tokens: list[int], mark: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == mark:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def test_length_and_order_of_chunks() -> None:
    text, title, count = list(range(67)), 7, 400
    texts = TitledTexts(from_lists([text] * count), np.full(count, title))
    shuffled = to_lists(shuffle_chunks(texts, 5.0, 1000, MASK, np.random.default_rng(3)))
    chunks = [split_at(view[title:], MASK)[1:] for view in shuffled]
    mean = count * 60 / sum(map(len, chunks))
    assert 4.5 < mean < 5.0  # chunks at the ends of the text are shorter
    firsts = [view[0][0] for view in chunks]
    assert min(firsts) == title and max(firsts) > 60
    assert 20 < np.mean(firsts) < 45  # uniform over the text
    cut = to_lists(shuffle_chunks(texts, 5.0, 23, MASK, np.random.default_rng(3)))
    assert cut == [view[:23] for view in shuffled]


def masked(share: float, titles: list[int]) -> tuple[TokenBatch, TokenBatch]:
    sequences = from_lists([list(range(1, 90)), list(range(1, 60))])
    plain = next_token_batch(sequences, numbers([1, 1]), 0)
    return plain, mask_inputs(plain, numbers(titles), share, MASK, np.random.default_rng(2))


def test_masking_changes_inputs_and_not_targets() -> None:
    plain, half = masked(0.5, [3, 11])
    assert torch.equal(plain.targets, half.targets)
    changed = plain.inputs != half.inputs
    assert (half.inputs[changed] == MASK).all()
    assert not changed[0, :3].any() and not changed[1, :11].any()
    assert 0.35 < changed[0, 3:].float().mean() < 0.65
    assert 0.35 < changed[1, 11:].float().mean() < 0.65

    plain, unchanged = masked(0.9, [100, 100])  # nothing after the titles
    assert torch.equal(plain.inputs, unchanged.inputs)


def test_a_corrupted_view_counts_as_title() -> None:
    texts = TitledTexts(from_lists([list(range(20))] * 50), np.full(50, 2))
    config = ViewsConfig(corrupted=0.5, rotated=0.5)
    views = draw_views(texts, config, 20, MASK, np.random.default_rng(1))
    for view, title in zip(to_lists(views.texts), views.title_lengths, strict=True):
        assert title == (len(view) if MASK in view else 2)


def parts(corrupted: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return prefix, span and suffix of `prefix MASK suffix MASK span`."""
    first = corrupted.index(MASK)
    second = corrupted.index(MASK, first + 1)
    assert MASK not in corrupted[second + 1 :]
    return corrupted[:first], corrupted[second + 1 :], corrupted[first + 1 : second]


@given(documents, st.data())
def test_moving_equals_slicing(sequences: list[list[int]], data: st.DataObject) -> None:
    spans = [data.draw(st.integers(0, len(text))) for text in sequences]
    starts = [
        data.draw(st.integers(0, len(text) - span))
        for text, span in zip(sequences, spans, strict=True)
    ]
    moved = move_spans(from_lists(sequences), numbers(starts), numbers(spans), MASK)
    assert to_lists(moved) == [
        [*text[:start], MASK, *text[start + span :], MASK, *text[start : start + span]]
        for text, start, span in zip(sequences, starts, spans, strict=True)
    ]


@given(documents, seeds, st.sampled_from([(0.05, 0.45), (0.3, 0.3), (0.01, 0.99)]))
def test_span_corruption_is_reversible(
    sequences: list[list[int]], seed: int, shares: tuple[float, float]
) -> None:
    config = CorruptionConfig(min_ratio=shares[0], max_ratio=shares[1])
    random = np.random.default_rng(seed)
    corrupted = to_lists(corrupt_spans(from_lists(sequences), config, MASK, random))
    for before, after in zip(sequences, corrupted, strict=True):
        prefix, span, suffix = parts(after)
        assert prefix + span + suffix == before
        # Rounded to tokens; not empty, unless the text is.
        low, high = (round(share * len(before)) for share in shares)
        assert min(len(before), max(1, low)) <= len(span) <= max(1, high)


def test_spans_are_uniform() -> None:
    text, count = list(range(89)), 4001
    config = CorruptionConfig(min_ratio=0.1, max_ratio=0.5)
    random = np.random.default_rng(3)
    views = to_lists(corrupt_spans(from_lists([text] * count), config, MASK, random))
    prefixes, spans, suffixes = np.array([list(map(len, parts(view))) for view in views]).T
    # Four standard errors of a uniform draw, sd = width / sqrt(12).
    error = 4 / np.sqrt(12 * count)
    assert abs(spans.mean() / 89 - 0.3) < 0.4 * error
    assert abs((prefixes / (prefixes + suffixes)).mean() - 0.5) < error
    assert spans.min() == 9
    assert spans.max() == 44  # rint(44.5) is even
    assert prefixes.min() == suffixes.min() == 0


@given(documents, seeds, st.integers(1, 7))
def test_a_window_is_a_slice(sequences: list[list[int]], seed: int, limit: int) -> None:
    cut = to_lists(cut_windows(from_lists(sequences), limit, np.random.default_rng(seed)))
    for before, after in zip(sequences, cut, strict=True):
        assert len(after) == min(len(before), limit)
        assert any(after == before[start : start + limit] for start in range(len(before) + 1))


def test_windows_are_uniform() -> None:
    windows = cut_windows(from_lists([list(range(11))] * 1009), 7, np.random.default_rng(5))
    starts = np.bincount([window[0] for window in to_lists(windows)], minlength=5)
    assert len(starts) == 5  # 0 to 11 - 7
    assert starts.min() > 1009 / 5 - 4 * np.sqrt(1009 * 0.2 * 0.8)


def test_wrong_shares_are_rejected() -> None:
    with pytest.raises(ValueError, match="is below min_ratio"):
        CorruptionConfig(min_ratio=0.2, max_ratio=0.1)
    with pytest.raises(ValueError, match="more than 1"):
        ViewsConfig(corrupted=0.7, rotated=0.4)
