"""Compare alignments with all paths, and attention peaks with all monotonic choices."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.decode.alignment import align, find_peaks, spans_around, word_spans
from harken.decode.ctc import Span, collapse_path
from small_ctc import collapse, every_text, lengths_present, random_logs, seeds, strengths

tables = st.tuples(seeds, st.integers(1, 5), st.integers(1, 5))


@given(seeds, strengths, st.integers(0, 2), st.integers(0, 5))
@settings(max_examples=25)
def test_most_probable_path_of_every_text(
    seed: int, strength: float, blank: int, frames: int
) -> None:
    logs = random_logs(1, frames, 3, seed, strength)
    texts = every_text(logs[0], blank)
    rows = logs.expand(len(texts), -1, -1)
    paths = align(rows, torch.ones(rows.shape[:2]).bool(), list(texts), blank=blank)
    for (text, expected), path in zip(texts.items(), paths, strict=True):
        assert path is not None and tuple(path.tokens) == text
        assert path.log_probability == pytest.approx(expected.best_path, abs=1e-10)
        if strength > 0:  # else there are ties
            assert path.spans == collapse_path(expected.symbols, 0.0, blank).spans


@pytest.mark.parametrize("frames", [0, 1, 3])
def test_text_without_a_path(frames: int) -> None:
    texts = [text for count in range(4) for text in itertools.product((1, 2), repeat=count)]
    logs = random_logs(1, frames, 3, seed=0).expand(len(texts), -1, -1)
    paths = align(logs, torch.ones(logs.shape[:2]).bool(), texts, blank=0)
    possible = {collapse(path, 0) for path in itertools.product(range(3), repeat=frames)}
    assert [path is not None for path in paths] == [text in possible for text in texts]


@given(seeds, st.lists(st.integers(0, 7), min_size=1, max_size=5), st.data())
@settings(max_examples=20)
def test_batch_equals_single_rows(seed: int, lengths: list[int], data: st.DataObject) -> None:
    words = st.lists(st.integers(1, 4), max_size=3)
    texts = [data.draw(words) for _ in lengths]
    logs = random_logs(len(lengths), 7, 5, seed, strength=2.0)
    together = align(logs, lengths_present(lengths, 7), texts, blank=0)
    for row, length in enumerate(lengths):
        own, all_of_it = logs[row : row + 1, :length], torch.ones(1, length).bool()
        (alone,) = align(own, all_of_it, [texts[row]], blank=0)
        if alone is None:
            assert together[row] is None
        else:
            ours = together[row]
            assert ours is not None and ours.spans == alone.spans
            assert ours.log_probability == pytest.approx(alone.log_probability, abs=1e-12)


def test_many_frames_of_one_path() -> None:
    """With certain frames, the spans are those of the frames."""
    symbols = [0] * 41 + [3] * 17 + [0] + [3] * 5 + [1] * 29 + [0] * 7
    scores = torch.nn.functional.one_hot(torch.tensor([symbols]), 5).double() * 9
    (path,) = align(scores.log_softmax(dim=-1), torch.ones(1, 100).bool(), [[3, 3, 1]], blank=0)
    assert path is not None
    assert path.spans == [Span(41, 58), Span(59, 64), Span(64, 93)]


def test_no_rows() -> None:
    assert align(torch.zeros(0, 3, 5), torch.zeros(0, 3).bool(), [], blank=0) == []


@given(tables)
@settings(max_examples=40)
def test_peaks_are_the_best_monotonic_choice(table: tuple[int, int, int]) -> None:
    seed, tokens, frames = table
    weights = random_logs(1, tokens, frames, seed, strength=2.0)[0].exp()
    before = weights.clone()
    paths = find_peaks(weights).tolist()
    assert torch.equal(weights, before)
    choices = itertools.product(range(frames), repeat=tokens)
    monotonic = [choice for choice in choices if list(choice) == sorted(choice)]

    def total(choice: tuple[int, ...]) -> float:
        return sum(weights[token, frame].item() for token, frame in enumerate(choice))

    assert tuple(paths) == max(monotonic, key=total)


def test_ties_take_the_earliest_peak() -> None:
    assert find_peaks(torch.full((3, 5), 0.2)).tolist() == [0, 0, 0]
    assert find_peaks(torch.zeros(0, 5)).tolist() == []


def test_each_token_gets_its_nearest_frames() -> None:
    points = [1, 2, 6]
    spans = spans_around(points, 9)
    assert spans == [Span(0, 2), Span(2, 4.5), Span(4.5, 9)]
    for frame in (0, 1, 2, 3, 5, 6, 7, 8):  # frame 4 is as near to 2 as to 6: they meet in it
        nearest = spans[min(range(3), key=lambda index: abs(points[index] - frame))]
        assert nearest.start <= frame and frame + 1 <= nearest.end
    assert spans_around([4.25], 9) == [Span(0, 9)]
    assert spans_around([], 9) == []


def test_word_spans() -> None:
    spans = [Span(1, 3), Span(4, 5), Span(5, 8), Span(8, 9), Span(12, 20)]
    assert word_spans(spans, [True, False, True, True, False]) == [
        Span(1, 5),
        Span(5, 8),
        Span(8, 20),
    ]
    # The first token always belongs to the first word.
    assert word_spans(spans[:3], [False, False, True]) == [Span(1, 5), Span(5, 8)]
    assert word_spans([], []) == []
    with pytest.raises(ValueError, match="shorter"):
        word_spans(spans, [True])
