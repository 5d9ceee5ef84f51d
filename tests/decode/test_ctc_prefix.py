"""Against all texts of few frames, and against a slow search in dictionaries."""

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


def searched(logs: Tensor, blank: int, beam: int, nbest: int = 1) -> list[list[TokenHypothesis]]:
    return search_prefixes(
        logs, torch.ones(logs.shape[:2]).bool(), blank=blank, beam=beam, nbest=nbest
    )


@given(seeds, strengths, st.integers(0, 2), st.integers(0, 5))
@settings(max_examples=40)
def test_a_beam_that_holds_everything_finds_every_text(
    seed: int, strength: float, blank: int, frames: int
) -> None:
    logs = random_logs(2, frames, 3, seed, strength)
    every = [every_text(row, blank) for row in logs]
    count = len(every[0])
    for row, found in zip(every, searched(logs, blank, count + 2, count + 1), strict=True):
        assert {tuple(one.tokens) for one in found} == set(row) and len(found) == count
        ours = [one.log_probability for one in found]
        wanted = [row[tuple(one.tokens)].log_probability for one in found]
        assert ours == pytest.approx(wanted, abs=1e-10)
        assert ours == sorted(ours, reverse=True)


def slow_search(logs: Tensor, blank: int, beam: int) -> dict[tuple[int, ...], float]:
    """Of one row, in probabilities: {prefix: [spoken, silent]}, extended by every token."""
    kept = {(): [0.0, 1.0]}
    for row in logs.exp().tolist():
        heard: dict[tuple[int, ...], list[float]] = {}
        for prefix, (spoken, silent) in kept.items():
            for symbol, chance in enumerate(row):
                if symbol == blank:
                    heard.setdefault(prefix, [0.0, 0.0])[1] += (spoken + silent) * chance
                    continue
                longer = heard.setdefault((*prefix, symbol), [0.0, 0.0])
                if prefix and prefix[-1] == symbol:
                    heard.setdefault(prefix, [0.0, 0.0])[0] += spoken * chance
                    longer[0] += silent * chance
                else:
                    longer[0] += (spoken + silent) * chance
        best = sorted(heard, key=lambda one: -sum(heard[one]))[:beam]
        kept = {prefix: heard[prefix] for prefix in best if sum(heard[prefix]) > 0}
    return {prefix: math.log(sum(parts)) for prefix, parts in kept.items()}


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
def test_equals_a_slow_search(
    seed: int, strength: float, quiet: float, beam: int, symbols: int, frames: int
) -> None:
    """Prefixes fall out of the beam and come back; more tokens than are looked at do no harm."""
    blank = symbols - 1
    logs = random_logs(13, frames, symbols, seed, strength)
    logs[..., blank] += quiet
    for row, found in zip(logs, searched(logs, blank, beam, beam), strict=True):
        slowly = slow_search(row, blank, beam)
        assert {tuple(one.tokens) for one in found} == set(slowly)
        for one in found:
            wanted = slowly[tuple(one.tokens)]
            assert one.log_probability == pytest.approx(wanted, abs=1e-9)


@given(seeds, st.lists(st.integers(0, 7), min_size=1, max_size=5))
@settings(max_examples=20)
def test_rows_of_any_length_together_are_rows_alone(seed: int, lengths: list[int]) -> None:
    logs = random_logs(len(lengths), 7, 5, seed, strength=2.0)
    present = lengths_present(lengths, 7)
    together = search_prefixes(logs, present, blank=0, beam=3, nbest=2)
    for row, length in enumerate(lengths):
        (alone,) = searched(logs[row : row + 1, :length], 0, 3, 2)
        assert [one.tokens for one in together[row]] == [one.tokens for one in alone]
        totals = [one.log_probability for one in alone]
        assert [one.log_probability for one in together[row]] == pytest.approx(totals, abs=1e-12)


def test_it_finds_what_the_best_path_misses() -> None:
    """By hand: two frames of .4 'a' and .6 blank. No 'a' has .36, 'a' has .16 + 2 * .24 = .64."""
    logs = torch.tensor([[[0.6, 0.4], [0.6, 0.4]]], dtype=torch.float64).log()
    ((best, other),) = searched(logs, 0, 2, 2)
    assert (best.tokens, other.tokens) == ([1], [])
    assert math.exp(best.log_probability) == pytest.approx(0.64)
    assert math.exp(other.log_probability) == pytest.approx(0.36)


def test_many_frames_do_not_vanish() -> None:
    """A probability far below what a float can hold, and no bound above the loss of PyTorch."""
    logs = random_logs(1, 997, 13, seed=2)
    ((found,),) = searched(logs, 0, 8)
    assert found.log_probability < -1000
    text = torch.tensor([found.tokens])
    whole = torch.ones(1, 997).bool()
    exact = -ctc_loss(logs.clone(), whole, text, torch.ones_like(text).bool(), blank=0).item()
    assert found.log_probability < exact


def test_tokens_that_cannot_be_said_are_not() -> None:
    logs = random_logs(1, 4, 5, seed=3)
    logs[..., [1, 3]] = -torch.inf
    (found,) = searched(logs, 0, 50, 50)
    said = set(itertools.chain.from_iterable(one.tokens for one in found))
    assert said == {2, 4}
    assert len(found) == len(every_text(logs[0][:, [0, 2, 4]], 0))


def test_a_model_that_has_lost_its_mind_says_nothing() -> None:
    logs = random_logs(2, 5, 3, seed=3)
    logs[0] = torch.nan
    lost, sane = searched(logs, 0, 3, 2)
    assert lost == [TokenHypothesis([], -math.inf)]
    assert sane == searched(logs[1:], 0, 3, 2)[0]


def test_no_rows_and_no_frames() -> None:
    assert searched(torch.zeros(0, 3, 5), 0, 2) == []
    assert searched(torch.zeros(1, 0, 5), 0, 2) == [[TokenHypothesis([], 0.0)]]


def test_more_than_the_beam_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="at most the beam of 3, got 4"):
        searched(torch.zeros(1, 1, 3), 0, 3, 4)
