"""Constrained decoding compared with a list of all sequences."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.decode.viterbi import best_valid_tags
from small_ctc import every_path, lengths_present, random_logs, seeds, strengths


def is_valid(tags: tuple[int, ...], follow: torch.Tensor, outside: int) -> bool:
    pairs = itertools.pairwise([outside, *tags, outside])
    return all(follow[previous, tag] for previous, tag in pairs)


@given(seeds, strengths, st.integers(0, 2), st.lists(st.integers(0, 5), min_size=1, max_size=4))
@settings(max_examples=60)
def test_the_best_of_all_valid_sequences(
    seed: int, strength: float, outside: int, lengths: list[int]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    follow = torch.rand(3, 3, generator=generator) < 0.6
    follow[outside, outside] = True
    logs = random_logs(len(lengths), max(lengths), 3, seed, strength)
    tags, log_probs = best_valid_tags(logs, lengths_present(lengths, max(lengths)), follow, outside)
    for row, length in enumerate(lengths):
        paths = dict(every_path(logs[row, :length]))
        valid = {path: log for path, log in paths.items() if is_valid(path, follow, outside)}
        found = tuple(tags[row, :length].tolist())
        assert valid[found] == pytest.approx(max(valid.values()), abs=1e-12)
        for end in range(length + 1):  # the sum over all that continue the same beginning
            total = math.fsum(map(math.exp, valid.values()))
            same = (math.exp(log) for path, log in valid.items() if path[:end] == found[:end])
            expected = math.log(math.fsum(same) / total)
            assert log_probs[row, :end].sum().item() == pytest.approx(expected, abs=1e-9)


def test_without_constraints_each_tag_is_the_most_probable() -> None:
    logs = random_logs(2, 7, 5, seed=3)
    tags, log_probs = best_valid_tags(
        logs, torch.ones(2, 7).bool(), torch.ones(5, 5).bool(), outside=0
    )
    best = logs.max(dim=-1)
    assert torch.equal(tags, best.indices)
    torch.testing.assert_close(log_probs, best.values.double())
