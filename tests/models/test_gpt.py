from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from choices import EVERY_PAIR
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import RotaryConfig
from harken.attention.scores import MergedConfig
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.models.causal import MAX_SHARED
from harken.models.gpt import GPTConfig
from ragged import check_ragged_chunks
from small_models import (
    CASES,
    LENGTH,
    POSITIONS,
    VOCABULARY,
    WIDTH,
    ModelCase,
    small_config,
    small_model,
    stirred,
)

TOKENS = torch.arange(1, 15).reshape(2, 7)


def test_tied_head_is_the_embedding_table() -> None:
    tied = small_model()
    assert tied.lm_head.weight is tied.embedding.weight
    states, scores = tied.states(TOKENS), tied(TOKENS)
    assert states.shape == (2, 7, WIDTH) and scores.shape == (2, 7, VOCABULARY)
    assert_close(scores, states @ tied.embedding.weight.T, rtol=0, atol=1e-12)
    chosen = torch.tensor([[True, False] * 3 + [True], [False] * 7])
    assert_close(tied(TOKENS, at=chosen), scores[chosen], rtol=0, atol=1e-12)
    untied = replace(small_config(), tie_embeddings=False).build(VOCABULARY, seed=0)
    assert untied.lm_head.weight.std() > 0.01
    assert not torch.equal(untied.lm_head.weight, untied.embedding.weight)


@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_ragged_chunks_equal_each_row_alone(case: ModelCase) -> None:
    check_ragged_chunks(small_model(*case), VOCABULARY, LENGTH, max_examples=4)


@st.composite
def recipes(draw: st.DrawFn) -> GPTConfig:
    """Draw any valid model; sizes are adapted to the other choices."""
    score, position = draw(st.sampled_from(EVERY_PAIR))
    merged, rotary = isinstance(score, MergedConfig), isinstance(position, RotaryConfig)
    concat = getattr(position, "combine", "add") == "concat"
    v_proj, out_proj = draw(st.booleans()), draw(st.booleans())
    heads = draw(st.integers(1, 4)) if v_proj or out_proj else 1
    head_width = draw(st.sampled_from([2, 4, 6]))
    inside = heads * head_width  # what fits without an output projection
    if out_proj or not v_proj:
        inside = 2 * draw(st.integers(2, 7)) - (0 if concat or merged else draw(st.integers(0, 1)))
    return GPTConfig(
        layers=draw(st.integers(1, 3)),
        width=inside // 2 if concat else inside,
        max_length=LENGTH,
        attention=MultiHeadConfig(
            heads=heads,
            kv_heads=draw(st.sampled_from([n for n in range(1, 5) if heads % n == 0])),
            head_width=head_width if v_proj else None,
            key_width=None if merged else draw(st.sampled_from([2, 4] if rotary else [1, 3, 4])),
            score=score,
            bias=draw(st.booleans()),
            v_proj=v_proj,
            out_proj=out_proj,
        ),
        position=position,
        mask=draw(st.sampled_from(["causal", "strictly_causal"])),
        window=draw(st.sampled_from([None, 1, 2, 5, LENGTH])),
        feedforward=FeedForwardConfig(
            activation=draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "swiglu"])), expansion=2.0
        ),
        norm=NormConfig(
            kind=draw(st.sampled_from(["layer", "rms"])),
            place=draw(st.sampled_from(["pre", "post"])),
        ),
        tie_embeddings=not concat and draw(st.booleans()),
    )


@given(
    recipes(),
    st.integers(0, 2**31),
    st.lists(st.integers(0, LENGTH), max_size=4),
    st.integers(0, LENGTH - 1),
)
@settings(max_examples=50)
@torch.no_grad()
def test_steps_equal_whole_rows_without_leaks(
    config: GPTConfig, seed: int, cuts: list[int], changed_at: int
) -> None:
    model = stirred(config, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH), generator=generator)
    whole = model.states(tokens)
    assert whole.isfinite().all()
    state, parts = model.init_state(2, tokens.device), []
    bounds = sorted({0, *cuts, LENGTH})
    for first, last in pairwise(bounds):
        present = torch.ones(2, last - first, dtype=torch.bool)
        states, state = model.step(tokens[:, first:last], present, state)
        parts.append(states)
    scale = whole.abs().max().item()
    assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-10 * max(1.0, scale))
    other = tokens.clone()
    other[:, changed_at] = (other[:, changed_at] + 1) % VOCABULARY
    changed = model.states(other)
    assert torch.equal(changed[:, :changed_at], whole[:, :changed_at])
    assert not torch.equal(changed[:, changed_at], whole[:, changed_at])


@given(
    recipes(),
    st.integers(0, 2**31),
    st.integers(1, LENGTH - 1),
    st.lists(st.sampled_from([1, 2, 3, MAX_SHARED + 1]), max_size=4),
)
@settings(max_examples=50)
@torch.no_grad()
def test_hypotheses_that_share_a_cache_equal_whole_rows(
    config: GPTConfig, seed: int, length: int, beams: list[int]
) -> None:
    model = stirred(config, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randint(0, VOCABULARY, (2, length), generator=generator)
    _, state = model.step(texts, None, model.init_state(2, texts.device))
    for before, beam in pairwise([1, *beams[: LENGTH - length]]):
        slots = torch.randint(0, before, (2, beam), generator=generator)
        rows = (slots + before * torch.arange(2)[:, None]).flatten()
        state = state.reorder(rows, beam=beam, same_prompts=True)
        new = torch.randint(0, VOCABULARY, (2 * beam, 1), generator=generator)
        states, state = model.step(new, None, state)
        texts = torch.cat((texts[rows], new), dim=1)
        whole = model.states(texts)[:, -1:]
        scale = max(1.0, whole.abs().max().item())
        assert_close(states, whole, rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("position", POSITIONS)
def test_positions_encode_order(position: str) -> None:
    """One layer and two tokens swapped: only a position can change what the last token sees."""
    model = small_model(position=position)
    model.stack.blocks = model.stack.blocks[:1]
    straight, swapped = model(torch.tensor([[3, 5, 7], [5, 3, 7]]))
    difference = (straight[-1] - swapped[-1]).abs().max()
    assert difference < 1e-12 if position == "none" else difference > 1e-3


@pytest.mark.parametrize("position", POSITIONS)
def test_half_precision_runs_with_every_position(position: str) -> None:
    model = small_model(position=position).bfloat16()
    assert model(TOKENS).dtype == torch.bfloat16


def test_incomplete_packing_is_rejected() -> None:
    for given_part in ("positions", "documents"):
        with pytest.raises(ValueError, match="needs both"):
            small_model()(TOKENS, **{given_part: TOKENS})


def test_dropout_is_active_in_training_only() -> None:
    model = GPTConfig(layers=1, width=12, max_length=7, dropout=0.5).build(VOCABULARY, seed=0)
    assert not torch.equal(model.train()(TOKENS), model(TOKENS))
    assert torch.equal(model.eval()(TOKENS), model(TOKENS))
