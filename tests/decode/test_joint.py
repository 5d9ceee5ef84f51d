"""Compare joint scores with all texts, and with PyTorch's loss for a real decoder."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import (
    Tables,
    assert_equal_hypotheses,
    best_of,
    numbered,
    padded,
    ragged_prompts,
    search_beam,
    with_end,
)
from test_search import END_WITH_MEMORY, MAX_TOKENS, forced, translator
from torch import Tensor

from harken.decode.ctc_prefix import CTCPrefixScorer
from harken.decode.joint import JointScorer
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper, TokenHypothesis
from harken.models.ctc import ctc_loss
from small_ctc import every_text, lengths_present, random_logs, seeds
from small_models import VOCABULARY

weights = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])


def joint_scorer(
    tables: Tables, logs: Tensor, present: Tensor, weight: float, blank: int, end: int
) -> JointScorer:
    ctc = CTCPrefixScorer(logs, present, blank=blank, end=end)
    return JointScorer(tables, ctc, weight)


def ranked(
    tables: Tables, prompt: int, logs: Tensor, weight: float, blank: int, end: int
) -> Iterator[TokenHypothesis]:
    """Yield every text with its weighted sum; a text that was cut is scored as a prefix."""
    texts = {
        text: math.exp(entry.log_probability)
        for text, entry in every_text(logs, blank).items()
        if end == blank or end not in text
    }
    for hypothesis in tables.sequences(prompt, end):
        text = tuple(hypothesis.tokens)
        chance = texts.get(text, 0.0)
        if len(text) == tables.max_tokens:
            chance = math.fsum(
                share for longer, share in texts.items() if longer[: len(text)] == text
            )
        parts = [(1 - weight, hypothesis.log_probability), (weight, math.log(chance or 1e-300))]
        if weight == 0 or chance > 0:
            yield TokenHypothesis(text, sum(share * log for share, log in parts if share))


@given(
    seeds,
    weights,
    st.sampled_from([0.0, 0.7, 1.0]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 4),
)
@settings(max_examples=40)
def test_wide_beam_ranks_by_the_weighted_sum(
    seed: int, weight: float, length_penalty: float, blank: int, end: int, frames: int
) -> None:
    max_tokens = 3
    tables = Tables(2, 3, max_tokens, seed=seed)
    logs = random_logs(2, frames, 3, seed + 1)
    if blank != end:
        logs[..., end] = -700.0  # the token that stands for the end is not generated
    lengths = [frames, frames - 1]
    stepper = joint_scorer(tables, logs, lengths_present(lengths, frames), weight, blank, end)
    results = search_beam(stepper, numbered(2), end, max_tokens, length_penalty=length_penalty)
    for row, ours in enumerate(results):
        every = ranked(tables, row, logs[row, : lengths[row]], weight, blank, end)
        assert_equal_hypotheses(ours, best_of(every, max_tokens, length_penalty, 3), 1e-9)


@given(seeds, st.integers(0, 6), st.integers(1, 4))
@settings(max_examples=20)
def test_weight_zero_ignores_ctc(seed: int, end: int, beam: int) -> None:
    tables = Tables(5, 7, 3, seed=seed)
    unused = torch.full((5, 2, 7), torch.nan)
    joint = joint_scorer(tables, unused, torch.ones(5, 2).bool(), 0.0, 0, end)
    ours = search_beam(joint, numbered(5), end, 3, beam=beam, nbest=beam, length_penalty=1.0)
    alone = search_beam(tables, numbered(5), end, 3, beam=beam, nbest=beam, length_penalty=1.0)
    assert ours == alone


@given(seeds, st.sampled_from([1.0, 3.0]))
@settings(max_examples=20)
def test_weight_one_finds_the_most_probable_text_of_ctc(seed: int, strength: float) -> None:
    tables, frames = Tables(2, 3, 5, seed=0), 4
    logs = random_logs(2, frames, 3, seed, strength)
    joint = joint_scorer(tables, logs, torch.ones(2, frames).bool(), 1.0, 0, 0)
    for row, (best, *_) in enumerate(search_beam(joint, numbered(2), 0, frames + 1, nbest=1)):
        texts = every_text(logs[row], 0)
        text = max(texts, key=lambda text: texts[text].log_probability)
        assert tuple(best.tokens) == text
        assert best.log_probability == pytest.approx(texts[text].log_probability, abs=1e-10)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_batch_equals_single_rows(weight: float) -> None:
    rows, frames = 11, 6
    tables = Tables(rows, 5, 5, seed=3)
    logs = random_logs(rows, frames, 5, seed=4, strength=2.0)
    lengths = [1 + row % frames for row in range(rows)]
    present = lengths_present(lengths, frames)
    joint = joint_scorer(tables, logs, present, weight, 0, 0)
    ours = search_beam(joint, numbered(rows), 0, 5, beam=3)
    ended = set()
    for row in range(rows):
        own = slice(row, row + 1)
        alone = joint_scorer(
            tables, logs[own, : lengths[row]], present[own, : lengths[row]], weight, 0, 0
        )
        prompt = (torch.tensor([[row]]), torch.ones(1, 1).bool())
        (theirs,) = search_beam(alone, prompt, 0, 5, beam=3)
        assert_equal_hypotheses(ours[row], theirs)
        ended.add(len(theirs[0].tokens))
    assert len(ended) >= 3, "rows should end at different steps"


@pytest.mark.parametrize("decoder", ["transformer", "rnn with location"])
@pytest.mark.parametrize(
    "search",
    [
        SearchConfig(),
        SearchConfig(beam=4, length_penalty=0.7),
        SearchConfig(temperature=0.9, seed=3),
    ],
    ids=["greedy", "beam", "sampling"],
)
def test_real_decoder_is_scored_by_both(decoder: str, search: SearchConfig) -> None:
    model, rows, start, end = translator(decoder), ragged_prompts(13, 7, seed=4), 3, END_WITH_MEMORY
    logs = random_logs(13, 7, VOCABULARY, seed=6, strength=3.0)
    present = lengths_present([2 + row % 5 for row in range(13)], 7)  # too few for long texts
    ctc = CTCPrefixScorer(logs, present, blank=end, end=end)
    stepper = JointScorer(Seq2SeqStepper(model, start), ctc, 0.4)
    results = generate(
        stepper, *padded(rows), search=search, end=end, max_tokens=MAX_TOKENS, nbest=1
    )
    ended = 0
    for at, (row, (hypothesis,)) in enumerate(zip(rows, results, strict=True)):
        if len(hypothesis.tokens) == MAX_TOKENS:
            continue
        ended += 1
        attention = forced(model, *padded([row]), start, with_end(hypothesis, end, MAX_TOKENS))
        text, own = torch.tensor([list(hypothesis.tokens)], dtype=torch.int64), slice(at, at + 1)
        written = torch.ones_like(text).bool()
        loss = ctc_loss(logs[own].clone(), present[own], text, written, blank=end).item()
        assert hypothesis.log_probability == pytest.approx(0.6 * attention - 0.4 * loss, abs=1e-9)
    assert ended > 6
