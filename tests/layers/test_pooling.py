"""Pooling against loops in float64; padding has no influence."""

import math

import pytest
import torch
from torch import nn

from harken.attention.multihead import MultiHeadConfig
from harken.attention.scores import SynthesizerConfig
from harken.layers.pooling import (
    AttentionPoolingConfig,
    FirstPoolingConfig,
    MaxPoolingConfig,
    MeanPoolingConfig,
    PoolingConfig,
)

ROWS, TIME, WIDTH, HEADS = 3, 7, 10, 5
LENGTHS = (7, 2, 5)
CONFIGS: list[PoolingConfig] = [
    MaxPoolingConfig(),
    MeanPoolingConfig(),
    FirstPoolingConfig(),
    AttentionPoolingConfig(),
    AttentionPoolingConfig(attention=MultiHeadConfig(heads=HEADS)),
]


def states_and_mask() -> tuple[torch.Tensor, torch.Tensor]:
    states = torch.randn(ROWS, TIME, WIDTH, generator=torch.Generator().manual_seed(0))
    return states.double(), torch.arange(TIME) < torch.tensor(LENGTHS)[:, None]


def built(config: PoolingConfig) -> nn.Module:
    torch.manual_seed(0)
    return config.build(WIDTH).double()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_padding_has_no_influence(config: PoolingConfig) -> None:
    states, present = states_and_mask()
    pooling = built(config)
    pooled = pooling(states, present)
    assert pooled.shape == (ROWS, pooling.width)
    padded = states.masked_fill(~present[..., None], 1e3)
    torch.testing.assert_close(pooling(padded, present), pooled)
    for row, length in enumerate(LENGTHS):
        alone = pooling(states[row : row + 1, :length], present[row : row + 1, :length])
        torch.testing.assert_close(alone[0], pooled[row])


def test_simple_pooling_equals_pytorch() -> None:
    states, present = states_and_mask()
    row = states[1, :2]
    for config, expected in (
        (MaxPoolingConfig(), row.amax(dim=0)),
        (MeanPoolingConfig(), row.mean(dim=0)),
        (FirstPoolingConfig(), row[0]),
    ):
        torch.testing.assert_close(built(config)(states, present)[1], expected)


def test_attention_pooling_is_a_weighted_mean_of_the_states() -> None:
    states, present = states_and_mask()
    config = AttentionPoolingConfig(
        attention=MultiHeadConfig(heads=HEADS, v_proj=False, out_proj=False)
    )
    pooling = built(config)
    assert pooling.width == HEADS * WIDTH
    pooled = pooling(states, present)
    queries = pooling.cross.score.q_proj(pooling.query.weight)[0].view(HEADS, -1)
    for row, length in enumerate(LENGTHS):
        keys = pooling.cross.score.k_proj(states[row, :length]).view(length, HEADS, -1)
        for head in range(HEADS):
            scores = [
                (queries[head] @ key[head]).item() / math.sqrt(WIDTH // HEADS) for key in keys
            ]
            total = sum(map(math.exp, scores))
            weights = [math.exp(score) / total for score in scores]
            mean = sum(w * state for w, state in zip(weights, states[row, :length], strict=True))
            part = pooled[row, head * WIDTH : (head + 1) * WIDTH]
            torch.testing.assert_close(part, mean)


def test_scores_with_weights_per_position_are_refused() -> None:
    with pytest.raises(ValueError, match="any length"):
        AttentionPoolingConfig(attention=MultiHeadConfig(score=SynthesizerConfig()))
