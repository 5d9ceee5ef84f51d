import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.decode.ctc import best_paths, collapse_path, set_padding_to_blank
from small_ctc import (
    collapse,
    every_path,
    every_text,
    lengths_present,
    random_logs,
    seeds,
    strengths,
)


@given(seeds, strengths, st.integers(0, 2), st.integers(1, 5))
@settings(max_examples=30)
def test_best_path_is_the_most_probable_of_all(
    seed: int, strength: float, blank: int, frames: int
) -> None:
    logs = random_logs(1, frames, 3, seed, strength)
    (path,) = best_paths(logs, torch.ones(1, frames).bool(), blank=blank)
    paths = dict(every_path(logs[0]))
    assert path.log_probability == pytest.approx(max(paths.values()), abs=1e-12)
    if strength > 0:
        assert tuple(path.tokens) == collapse(max(paths, key=lambda symbols: paths[symbols]), blank)


@given(st.lists(st.integers(0, 3), max_size=9), st.integers(0, 3))
def test_spans_reproduce_the_path(symbols: list[int], blank: int) -> None:
    path = collapse_path(symbols, 0.0, blank)
    assert tuple(path.tokens) == collapse(symbols, blank)
    rebuilt = [blank] * len(symbols)
    for token, span in zip(path.tokens, path.spans, strict=True):
        rebuilt[int(span.start) : int(span.end)] = [token] * int(span.end - span.start)
    assert rebuilt == symbols


@given(seeds, st.lists(st.integers(0, 5), min_size=1, max_size=4))
@settings(max_examples=20)
def test_padding_is_ignored(seed: int, lengths: list[int]) -> None:
    logs = random_logs(len(lengths), 5, 3, seed, strength=3.0)
    together = best_paths(logs, lengths_present(lengths, 5), blank=1)
    for row, length in enumerate(lengths):
        alone = best_paths(logs[row : row + 1, :length], torch.ones(1, length).bool(), blank=1)
        assert together[row].tokens == alone[0].tokens
        assert together[row].spans == alone[0].spans
        total = alone[0].log_probability
        assert together[row].log_probability == pytest.approx(total, abs=1e-12)


def test_padding_changes_no_probability() -> None:
    logs = random_logs(1, 4, 3, seed=5)
    whole = set_padding_to_blank(logs, torch.tensor([[True, True, False, False]]), blank=2)[0]
    short, padded = every_text(logs[0, :2], 2), {}
    for path, log in every_path(whole):
        text = collapse(path, 2)
        padded[text] = padded.get(text, 0.0) + math.exp(log)
    assert {text for text, chance in padded.items() if chance > 0} == set(short)
    for text, result in short.items():
        assert padded[text] == pytest.approx(math.exp(result.log_probability), abs=1e-12)


def test_single_precision_is_converted() -> None:
    logs = random_logs(2, 5, 7, seed=0).float()
    assert set_padding_to_blank(logs, torch.ones(2, 5).bool(), blank=0).dtype == torch.float64
    (first, _) = best_paths(logs, torch.ones(2, 5).bool(), blank=0)
    assert first.log_probability == logs[0].max(dim=-1).values.double().sum().item()
