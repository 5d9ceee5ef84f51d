from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from harken.attention.masks import CAUSAL, NO_MASK, Mask
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.transformer import TransformerBlock, TransformerConfig

BATCH, TIME, WIDTH, HEADS, INNER = 2, 7, 15, 3, 11


def built(norm: str, activation: str, dropout: float = 0.0) -> TransformerBlock:
    block = TransformerConfig(
        attention=MultiHeadConfig(heads=HEADS),
        feedforward=FeedForwardConfig(activation=activation, expansion=INNER / WIDTH),
        norm=NormConfig(place=norm),
        dropout=dropout,
    ).build(WIDTH, TIME)
    for parameter in block.parameters():
        nn.init.normal_(parameter, mean=0.2, std=0.4)
    return block.double().eval()


def in_order(mask: Mask) -> AttentionContext:
    slots = torch.arange(TIME)[None]
    return AttentionContext(mask=mask, query_positions=slots, key_positions=slots)


def pytorchs(ours: TransformerBlock, norm: str, activation: Any) -> nn.TransformerEncoderLayer:
    """Their layer with our weights; our attention has no offsets, so theirs are zero."""
    theirs = nn.TransformerEncoderLayer(
        WIDTH,
        HEADS,
        dim_feedforward=INNER,
        activation=activation,
        norm_first=norm == "pre",
        batch_first=True,
        dtype=torch.float64,
    ).eval()
    attention = ours.attention
    copied = {
        "self_attn.in_proj_weight": torch.cat(
            [
                attention.score.q_proj.weight,
                attention.score.k_proj.weight,
                attention.v_proj.weight,
            ]
        ),
        "self_attn.in_proj_bias": torch.zeros(3 * WIDTH),
        "self_attn.out_proj.weight": attention.out_proj.weight,
        "self_attn.out_proj.bias": torch.zeros(WIDTH),
    }
    layers = {
        "linear1": ours.feedforward.up_proj,
        "linear2": ours.feedforward.down_proj,
        "norm1": ours.attention_norm,
        "norm2": ours.feedforward_norm,
    }
    for name, layer in layers.items():
        copied |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
    theirs.load_state_dict(copied, strict=True)
    return theirs


ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_agrees_with_pytorch(norm: str, activation: str, causal: bool) -> None:
    ours = built(norm, activation)
    theirs = pytorchs(ours, norm, ACTIVATIONS[activation])
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    hidden = torch.ones(TIME, TIME, dtype=torch.bool).triu(diagonal=1) if causal else None
    output, _ = ours(inputs, in_order(CAUSAL if causal else NO_MASK))
    assert_close(output, theirs(inputs, src_mask=hidden), rtol=0, atol=1e-11)


def test_dropout_applies_to_residual_branches_only() -> None:
    block = built("pre", "gelu", dropout=1 - 1e-9)
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    assert torch.equal(block.train()(inputs, in_order(CAUSAL))[0], inputs)
    assert (block.eval()(inputs, in_order(CAUSAL))[0] != inputs).all()
