"""Compare CTC prefix scores with all texts, and with PyTorch's loss for long ones."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import numbered, search_beam
from torch import Tensor

from harken.decode.ctc_prefix import CTCPrefixScorer
from harken.decode.sampling import greedy_search
from harken.models.ctc import ctc_loss
from small_ctc import (
    every_text,
    lengths_present,
    log_sum,
    padded_texts,
    random_logs,
    seeds,
    strengths,
)

SYMBOLS = 4
ends = st.integers(0, SYMBOLS - 1)


def stepper_of(logs: Tensor, blank: int, end: int) -> CTCPrefixScorer:
    return CTCPrefixScorer(logs, torch.ones(logs.shape[:2]).bool(), blank=blank, end=end)


def scores_after(stepper: CTCPrefixScorer, rows: int, tokens: tuple[int, ...]) -> Tensor:
    """Return the scores after these tokens, the same in all rows."""
    scores, state = stepper.prefill(*numbered(rows))
    for token in tokens:
        scores, state = stepper.step(torch.full((rows,), token), state)
    return stepper.log_probs(scores)


@given(seeds, strengths, ends, ends, st.integers(1, 4))
@settings(max_examples=12)
def test_scores_are_conditional_probabilities(
    seed: int, strength: float, blank: int, end: int, frames: int
) -> None:
    logs = random_logs(1, frames, SYMBOLS, seed, strength)
    if blank != end:
        logs[..., end] = -700.0  # texts with `end` inside cannot be generated
        logs = logs.log_softmax(dim=-1)
    texts = {
        text: math.exp(entry.log_probability)
        for text, entry in every_text(logs[0], blank).items()
        if end == blank or end not in text
    }
    stepper = stepper_of(logs, blank, end)
    tokens = [token for token in range(SYMBOLS) if token not in (blank, end)]

    def prefix_probability(prefix: tuple[int, ...]) -> float:
        return math.fsum(share for text, share in texts.items() if text[: len(prefix)] == prefix)

    for prefix in texts:
        shares = scores_after(stepper, 1, prefix)[0].exp().tolist()
        assert shares[end] == pytest.approx(texts[prefix] / prefix_probability(prefix), abs=1e-9)
        for token in tokens:
            share = prefix_probability((*prefix, token)) / prefix_probability(prefix)
            assert shares[token] == pytest.approx(share, abs=1e-9)
        if blank != end:
            assert shares[blank] == 0.0
        assert math.fsum(shares) == pytest.approx(1.0, abs=1e-9)


@given(seeds, st.lists(st.integers(1, 10), max_size=6))
@settings(max_examples=25)
def test_total_of_a_long_text_is_the_loss_of_pytorch(seed: int, text: list[int]) -> None:
    frames = 61
    logs = random_logs(2, frames, 11, seed, strength=5.0)
    present = lengths_present([frames, 43], frames)
    stepper = CTCPrefixScorer(logs, present, blank=0, end=0)
    scores, state = stepper.prefill(*numbered(2))
    total = torch.zeros(2, dtype=torch.float64)
    for token in [*text, 0]:
        total += stepper.log_probs(scores)[:, token]
        scores, state = stepper.step(torch.tensor([token] * 2), state)
    for row in range(2):
        own = slice(row, row + 1)
        targets, written = padded_texts([text], 1)
        loss = ctc_loss(logs[own].clone(), present[own], targets, written, blank=0)
        assert total[row].item() == pytest.approx(-loss.item(), rel=1e-10)


def test_padding_changes_nothing() -> None:
    logs = random_logs(3, 7, 5, seed=2)
    lengths = [7, 4, 0]
    stepper = CTCPrefixScorer(logs, lengths_present(lengths, 7), blank=0, end=0)
    for tokens in ((), (3,), (3, 3), (1, 2, 4)):
        together = scores_after(stepper, 3, tokens)
        for row, length in enumerate(lengths):
            if length == 0:
                continue
            alone = stepper_of(logs[row : row + 1, :length], 0, 0)
            torch.testing.assert_close(
                together[row], scores_after(alone, 1, tokens)[0], rtol=0, atol=1e-10
            )


def test_impossible_continuations_are_minus_infinity() -> None:
    """Three tokens do not fit into two frames: all scores are -inf, not NaN."""
    stepper = stepper_of(random_logs(1, 2, 5, seed=0), 0, 0)
    for tokens in ((1, 1), (1, 2, 3), (1, 2, 3, 4), (0,)):
        assert scores_after(stepper, 1, tokens).tolist() == [[-math.inf] * 5]


@pytest.mark.parametrize("prefix", [(), (1,), (3,), (2, 1), (3, 3)])
def test_tiny_probabilities_do_not_underflow(prefix: tuple[int, ...]) -> None:
    """Other tokens have e^-300 in every frame: the product of two underflows."""
    logs = torch.full((1, 3, 4), -300.0, dtype=torch.float64)
    logs[0, [0, 1, 2], [1, 2, 3]] = 0.0
    texts = {text: entry.log_probability for text, entry in every_text(logs[0], 0).items()}
    scores = scores_after(stepper_of(logs, 0, 0), 1, prefix)[0].tolist()

    def prefix_probability(prefix: tuple[int, ...]) -> float:
        own = [log for text, log in texts.items() if text[: len(prefix)] == prefix]
        return log_sum(own) if own else -math.inf

    expected = [
        prefix_probability((*prefix, token)) - prefix_probability(prefix) for token in (1, 2, 3)
    ]
    assert scores[1:] == pytest.approx(expected, abs=1e-9)
    assert scores[0] == pytest.approx(
        texts.get(prefix, -math.inf) - prefix_probability(prefix), abs=1e-9
    )


def test_reordered_rows_continue_as_alone() -> None:
    """Rows of hypothesis prompt need not be adjacent."""
    logs = random_logs(3, 7, 5, seed=4)
    stepper = stepper_of(logs, 0, 0)
    _, state = stepper.prefill(*numbered(3))
    chosen = torch.tensor([2, 0, 1, 0, 2])
    state = stepper.reorder(state, chosen, beam=1, same_prompts=False)
    tokens = torch.tensor([1, 2, 3, 4, 3])
    scores, _ = stepper.step(tokens, state)
    for at, (row, token) in enumerate(zip(chosen.tolist(), tokens.tolist(), strict=True)):
        alone = scores_after(stepper_of(logs[row : row + 1], 0, 0), 1, (token,))
        torch.testing.assert_close(scores[at], alone[0], rtol=0, atol=1e-12)


@given(seeds, strengths, st.integers(1, 4))
@settings(max_examples=20)
def test_wide_beam_finds_the_most_probable_texts(seed: int, strength: float, frames: int) -> None:
    logs = random_logs(2, frames, 3, seed, strength)
    results = search_beam(stepper_of(logs, 0, 0), numbered(2), 0, frames + 1, beam=64)
    for row, ours in zip(logs, results, strict=True):
        scored = every_text(row, 0)
        expected = sorted((entry.log_probability for entry in scored.values()), reverse=True)[:3]
        assert [hypothesis.log_probability for hypothesis in ours] == pytest.approx(
            expected, abs=1e-10
        )
        for hypothesis in ours:
            own = scored[tuple(hypothesis.tokens)].log_probability
            assert hypothesis.log_probability == pytest.approx(own, abs=1e-10)


def test_greedy_search_of_ctc_ends() -> None:
    logs = random_logs(5, 13, 7, seed=1, strength=4.0)
    for hypothesis in greedy_search(stepper_of(logs, 0, 0), *numbered(5), end=0, max_tokens=20):
        assert 0 < len(hypothesis.tokens) <= 13 and math.isfinite(hypothesis.log_probability)


def test_prompts_must_match_rows() -> None:
    with pytest.raises(AssertionError, match="3 prompts for 2 rows"):
        stepper_of(random_logs(2, 3, 5, seed=0), 0, 0).prefill(*numbered(3))
