"""The Transformer decoder, against PyTorch's own layer and against itself step by step."""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.compatibility import conflict
from harken.attention.masks import CAUSAL, NO_MASK
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig, PositionConfig
from harken.attention.scores import ScoreConfig, SynthesizerConfig
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.transformer import TransformerConfig
from harken.models.decoders import TransformerDecoder, TransformerDecoderConfig
from small_layers import context_of, copy_to_pytorch, randomized

BATCH, TIME, PLACES, WIDTH, MEMORY, VOCABULARY = 2, 5, 7, 12, 9, 17
LEGAL = [
    (score(), position())
    for score in get_args(ScoreConfig)
    for position in get_args(PositionConfig)
    if conflict(score(), position()) is None
]


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_block_agrees_with_pytorch(place: str) -> None:
    width, heads, inner = 15, 3, 22
    ours = TransformerConfig(
        attention=MultiHeadConfig(heads=heads, bias=True),
        feedforward=FeedForwardConfig(activation="relu", inner=inner),
        norm=NormConfig(place=place),
    ).build(width, TIME, width)
    ours = randomized(ours, std=0.3)
    theirs = nn.TransformerDecoderLayer(
        width, heads, inner, 0.0, batch_first=True, norm_first=place == "pre", dtype=torch.float64
    ).eval()
    copy_to_pytorch(ours, theirs)
    tokens = torch.randn(BATCH, TIME, width, dtype=torch.float64)
    memory = torch.randn(BATCH, PLACES, width, dtype=torch.float64)
    own, across = context_of(CAUSAL, TIME), context_of(NO_MASK, TIME, PLACES)
    output, _ = ours(tokens, own, None, ours.cross.project_kv(memory), across)
    hidden = torch.ones(TIME, TIME, dtype=torch.bool).triu(diagonal=1)
    assert_close(output, theirs(tokens, memory, tgt_mask=hidden), rtol=0, atol=1e-11)


def built(score: ScoreConfig, position: PositionConfig) -> TransformerDecoder:
    config = TransformerDecoderConfig(
        layers=2,
        width=WIDTH,
        max_length=11,
        attention=MultiHeadConfig(heads=3, score=score),
        position=position,
    )
    return randomized(config.build(VOCABULARY, MEMORY, seed=0), std=0.4)


@pytest.mark.parametrize(("score", "position"), LEGAL)
def test_cross_attention_ignores_distances(score: ScoreConfig, position: PositionConfig) -> None:
    """A memory in another order is the same memory: its positions have no relation to the target's.

    A synthesizer has a score for each position of the memory, so its order matters there.
    """
    if isinstance(score, SynthesizerConfig):
        pytest.skip("a synthesizer compares no content")
    decoder = built(score, position)
    memory, present, tokens = things()
    order = torch.randperm(PLACES, generator=torch.Generator().manual_seed(1))
    states, shuffled = (
        decoder(tokens, decoder.init_state(memory[:, chosen], present[:, chosen]))
        for chosen in (torch.arange(PLACES), order)
    )
    assert_close(states, shuffled, rtol=0, atol=1e-10)
    other = decoder(tokens, decoder.init_state(memory.flip(2), present))
    assert not torch.allclose(states, other, atol=1e-3), "the memory should matter"


def things() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    memory = torch.randn(BATCH, PLACES, MEMORY, dtype=torch.float64)
    present = torch.arange(PLACES) < torch.tensor([[4], [PLACES]])
    return memory, present, torch.randint(0, VOCABULARY, (BATCH, TIME))


@pytest.mark.parametrize(("score", "position"), LEGAL)
def test_steps_equal_whole_rows_without_leaks(score: ScoreConfig, position: PositionConfig) -> None:
    decoder = built(score, position)
    memory, present, tokens = things()
    begun = decoder.init_state(memory, present)
    whole = decoder(tokens, begun)
    state, steps = begun, []
    for t in range(TIME):
        output, state = decoder.step(
            tokens[:, t : t + 1], torch.ones(BATCH, 1, dtype=torch.bool), state
        )
        steps.append(output)
    assert_close(torch.cat(steps, dim=1), whole, rtol=0, atol=1e-10)
    other = tokens.clone()
    other[:, 3:] = (other[:, 3:] + 1) % VOCABULARY
    assert torch.equal(decoder(other, begun)[:, :3], whole[:, :3])
    # Only padding of the memory is ignored.
    spoilt = torch.where(present[..., None], memory, 9.0)
    assert_close(decoder(tokens, decoder.init_state(spoilt, present)), whole, rtol=0, atol=1e-12)
    assert not torch.allclose(decoder(tokens, decoder.init_state(memory + 0.1, present)), whole)


@given(st.lists(st.integers(1, TIME), min_size=BATCH, max_size=BATCH))
@settings(max_examples=10)
def test_steps_after_rows_of_different_lengths(lengths: list[int]) -> None:
    decoder = built(get_args(ScoreConfig)[1](), LearnedConfig())
    memory, present, tokens = things()
    there = torch.arange(TIME) < torch.tensor(lengths)[:, None]
    begun = decoder.init_state(memory, present)
    _, state = decoder.step(tokens, there, begun)
    last = torch.tensor([[3], [8]])
    after, _ = decoder.step(last, torch.ones(BATCH, 1, dtype=torch.bool), state)
    for row, length in enumerate(lengths):
        alone = decoder.init_state(memory[row : row + 1], present[row : row + 1])
        line = torch.cat((tokens[row, :length], last[row]))[None]
        assert_close(after[row, 0], decoder(line, alone)[0, -1], rtol=0, atol=1e-10)


def test_concatenated_positions_are_rejected() -> None:
    with pytest.raises(ValueError, match="must add its positions"):
        TransformerDecoderConfig(position=LearnedConfig(combine="concat"))
