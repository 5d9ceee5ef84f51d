import pytest
import torch
from torch.testing import assert_close

from harken.attention.multihead import MultiHeadConfig
from harken.layers.norm import NormConfig
from harken.layers.transformer import Stack, TransformerConfig
from small_layers import causal_context, randomized

BATCH, TIME, WIDTH, LAYERS = 2, 7, 11, 3


def built(norm: str) -> Stack:
    attention = MultiHeadConfig(heads=2, head_width=3, key_width=5)
    config = TransformerConfig(attention=attention, norm=NormConfig(place=norm))
    return randomized(Stack(config, LAYERS, WIDTH, TIME), std=0.4, mean=0.1)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_stack_is_a_sequence_of_blocks_with_a_final_pre_norm(norm: str) -> None:
    stack = built(norm)
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    output, states = stack(inputs, causal_context(0, TIME))
    for block, state in zip(stack.blocks, states, strict=True):
        inputs, seen = block(inputs, causal_context(0, TIME))
        assert_close(state, seen, rtol=0, atol=1e-12)
    if norm == "pre":
        centered = inputs - inputs.mean(dim=-1, keepdim=True)
        spread = (centered.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
        inputs = centered / spread * stack.norm.weight + stack.norm.bias
    assert_close(output, inputs, rtol=0, atol=1e-11)


def test_every_block_gets_its_cache() -> None:
    stack = built("pre")
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    whole, everything = stack(inputs, causal_context(0, TIME))
    early, past = stack(inputs[:, :4], causal_context(0, 4))
    late, past = stack(inputs[:, 4:], causal_context(4, TIME), past)
    assert_close(torch.cat((early, late), dim=1), whole, rtol=0, atol=1e-11)
    assert_close(past, everything, rtol=0, atol=1e-11)
