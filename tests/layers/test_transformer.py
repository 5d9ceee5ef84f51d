from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from harken.attention.masks import CAUSAL, NO_MASK
from harken.attention.multihead import MultiHeadConfig
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.layers.transformer import TransformerBlock, TransformerConfig
from small_layers import context_of, copy_to_pytorch, randomized

BATCH, TIME, WIDTH, HEADS, INNER = 2, 7, 15, 3, 11


def built(norm: str, activation: str, dropout: float = 0.0) -> TransformerBlock:
    config = TransformerConfig(
        attention=MultiHeadConfig(heads=HEADS, bias=True),
        feedforward=FeedForwardConfig(activation=activation, expansion=INNER / WIDTH),
        norm=NormConfig(place=norm),
        dropout=dropout,
    )
    return randomized(config.build(WIDTH, TIME), std=0.4, mean=0.2)


ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": partial(F.gelu, approximate="tanh")}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_agrees_with_pytorch(norm: str, activation: str, causal: bool) -> None:
    ours = built(norm, activation)
    theirs = nn.TransformerEncoderLayer(
        WIDTH,
        HEADS,
        dim_feedforward=INNER,
        activation=ACTIVATIONS[activation],
        norm_first=norm == "pre",
        batch_first=True,
        dtype=torch.float64,
    ).eval()
    copy_to_pytorch(ours, theirs)
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    hidden = torch.ones(TIME, TIME, dtype=torch.bool).triu(diagonal=1) if causal else None
    output, _ = ours(inputs, context_of(CAUSAL if causal else NO_MASK, TIME))
    assert_close(output, theirs(inputs, src_mask=hidden), rtol=0, atol=1e-11)


def test_dropout_applies_to_residual_branches_only() -> None:
    block = built("pre", "gelu", dropout=1 - 1e-9)
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    assert torch.equal(block.train()(inputs, context_of(CAUSAL, TIME))[0], inputs)
    assert (block.eval()(inputs, context_of(CAUSAL, TIME))[0] != inputs).all()
