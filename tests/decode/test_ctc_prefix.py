"""Compare with all texts of few frames, and with a reference search in dictionaries."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from harken.decode.ctc_prefix import search_prefixes
from harken.decode.stepper import TokenHypothesis
from harken.models.ctc import ctc_loss
from small_ctc import every_text, lengths_present, random_logs, seeds, strengths


def search_all(logs: Tensor, blank: int, beam: int, nbest: int = 1) -> list[list[TokenHypothesis]]:
    return search_prefixes(
        logs, torch.ones(logs.shape[:2]).bool(), blank=blank, beam=beam, nbest=nbest
    )


@given(seeds, strengths, st.integers(0, 2), st.integers(0, 5))
@settings(max_examples=40)
def test_wide_beam_finds_every_text(seed: int, strength: float, blank: int, frames: int) -> None:
    logs = random_logs(2, frames, 3, seed, strength)
    every = [every_text(row, blank) for row in logs]
    count = len(every[0])
    for row, hypotheses in zip(every, search_all(logs, blank, count + 2, count + 1), strict=True):
        assert {tuple(hypothesis.tokens) for hypothesis in hypotheses} == set(row) and len(
            hypotheses
        ) == count
        ours = [hypothesis.log_probability for hypothesis in hypotheses]
        expected = [row[tuple(hypothesis.tokens)].log_probability for hypothesis in hypotheses]
        assert ours == pytest.approx(expected, abs=1e-10)
        assert ours == sorted(ours, reverse=True)


def reference_search(logs: Tensor, blank: int, beam: int) -> dict[tuple[int, ...], float]:
    """Return log P by prefix of one row; prefixes have [nonblank, blank] probabilities."""
    prefixes = {(): [0.0, 1.0]}
    for row in logs.exp().tolist():
        extended: dict[tuple[int, ...], list[float]] = {}
        for prefix, (nonblank, after_blank) in prefixes.items():
            for symbol, chance in enumerate(row):
                if symbol == blank:
                    extended.setdefault(prefix, [0.0, 0.0])[1] += (nonblank + after_blank) * chance
                    continue
                longer = extended.setdefault((*prefix, symbol), [0.0, 0.0])
                if prefix and prefix[-1] == symbol:
                    extended.setdefault(prefix, [0.0, 0.0])[0] += nonblank * chance
                    longer[0] += after_blank * chance
                else:
                    longer[0] += (nonblank + after_blank) * chance
        best = sorted(extended, key=lambda prefix: -sum(extended[prefix]))[:beam]
        prefixes = {prefix: extended[prefix] for prefix in best if sum(extended[prefix]) > 0}
    return {prefix: math.log(sum(parts)) for prefix, parts in prefixes.items()}


@given(
    seeds,
    st.sampled_from([0.3, 2.0, 4.0]),
    st.sampled_from([-2.0, 0.0, 2.0]),
    st.integers(1, 7),
    st.sampled_from([2, 3, 5, 23]),
    st.sampled_from([5, 11]),
)
@example(seed=3, strength=0.3, quiet=0.0, beam=1, symbols=3, frames=11)  # the second best token
@settings(max_examples=60)
def test_equals_a_reference_search(
    seed: int, strength: float, quiet: float, beam: int, symbols: int, frames: int
) -> None:
    """Prefixes may leave the beam and return."""
    blank = symbols - 1
    logs = random_logs(13, frames, symbols, seed, strength)
    logs[..., blank] += quiet
    for row, hypotheses in zip(logs, search_all(logs, blank, beam, beam), strict=True):
        reference = reference_search(row, blank, beam)
        assert {tuple(hypothesis.tokens) for hypothesis in hypotheses} == set(reference)
        for hypothesis in hypotheses:
            expected = reference[tuple(hypothesis.tokens)]
            assert hypothesis.log_probability == pytest.approx(expected, abs=1e-9)


@given(seeds, st.lists(st.integers(0, 7), min_size=1, max_size=5))
@settings(max_examples=20)
def test_batch_equals_single_rows(seed: int, lengths: list[int]) -> None:
    logs = random_logs(len(lengths), 7, 5, seed, strength=2.0)
    present = lengths_present(lengths, 7)
    together = search_prefixes(logs, present, blank=0, beam=3, nbest=2)
    for row, length in enumerate(lengths):
        (alone,) = search_all(logs[row : row + 1, :length], 0, 3, 2)
        assert [hypothesis.tokens for hypothesis in together[row]] == [
            hypothesis.tokens for hypothesis in alone
        ]
        totals = [hypothesis.log_probability for hypothesis in alone]
        assert [hypothesis.log_probability for hypothesis in together[row]] == pytest.approx(
            totals, abs=1e-12
        )


def test_many_frames_do_not_underflow() -> None:
    """The result is far below the smallest float and below PyTorch's exact value."""
    logs = random_logs(1, 997, 13, seed=2)
    ((best,),) = search_all(logs, 0, 8)
    assert best.log_probability < -1000
    text = torch.tensor([best.tokens])
    whole = torch.ones(1, 997).bool()
    exact = -ctc_loss(logs.clone(), whole, text, torch.ones_like(text).bool(), blank=0).item()
    assert best.log_probability < exact


def test_impossible_tokens_are_not_generated() -> None:
    logs = random_logs(1, 4, 5, seed=3)
    logs[..., [1, 3]] = -torch.inf
    (hypotheses,) = search_all(logs, 0, 50, 50)
    tokens = set(itertools.chain.from_iterable(hypothesis.tokens for hypothesis in hypotheses))
    assert tokens == {2, 4}
    assert len(hypotheses) == len(every_text(logs[0][:, [0, 2, 4]], 0))


def test_nan_gives_an_empty_text() -> None:
    logs = random_logs(2, 5, 3, seed=3)
    logs[0] = torch.nan
    empty, other = search_all(logs, 0, 3, 2)
    assert empty == [TokenHypothesis([], -math.inf)]
    assert other == search_all(logs[1:], 0, 3, 2)[0]


def test_no_rows_and_no_frames() -> None:
    assert search_all(torch.zeros(0, 3, 5), 0, 2) == []
    assert search_all(torch.zeros(1, 0, 5), 0, 2) == [[TokenHypothesis([], 0.0)]]


def test_nbest_above_the_beam_is_rejected() -> None:
    with pytest.raises(ValueError, match="at most the beam size 3, got 4"):
        search_all(torch.zeros(1, 1, 3), 0, 3, 4)
