from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from choices import EVERY_SCORE, name
from harken.attention.kernels import attention_weights
from harken.attention.masks import CAUSAL, NO_MASK
from harken.attention.multihead import MultiHead, MultiHeadConfig
from harken.attention.relative import (
    AlibiConfig,
    PositionSizes,
    RelativeConfig,
)
from harken.attention.scores import (
    AdditiveConfig,
    DotConfig,
    MergedConfig,
    ScaledConfig,
    ScoreConfig,
)
from small_layers import context_of, randomized

BATCH, TIME = 2, 7
EVERYTHING, PAST = context_of(NO_MASK, TIME), context_of(CAUSAL, TIME)
SIZES = PositionSizes(width=11, key_width=4, heads=3, max_length=TIME)


def built(width: int, **choices: object) -> MultiHead:
    return randomized(MultiHeadConfig(**choices).build(width, max_length=TIME), std=width**-0.5)


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_pytorch(causal: bool) -> None:
    ours = built(15, heads=3)
    theirs = nn.MultiheadAttention(15, 3, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat((ours.score.q_proj.weight, ours.score.k_proj.weight, ours.v_proj.weight))
        )
        theirs.out_proj.weight.copy_(ours.out_proj.weight)
    inputs = torch.randn(BATCH, TIME, 15, dtype=torch.float64)
    hidden = torch.ones(TIME, TIME, dtype=torch.bool).triu(diagonal=1) if causal else None
    expected, _ = theirs(inputs, inputs, inputs, attn_mask=hidden)
    output, _ = ours(inputs, PAST if causal else EVERYTHING)
    assert_close(output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("score", "scale"), [(DotConfig(), 1.0), (ScaledConfig(), 5**-0.5)])
@torch.no_grad()
def test_separate_widths_of_keys_and_values_equal_a_loop(score: ScoreConfig, scale: float) -> None:
    heads, key_width, head_width, width = 3, 5, 13, 11
    ours = built(width, heads=heads, key_width=key_width, head_width=head_width, score=score)
    inputs = torch.randn(BATCH, TIME, width, dtype=torch.float64)
    output, cache = ours(inputs, EVERYTHING)
    assert cache.keys.shape == (BATCH, heads, TIME, key_width)
    assert cache.values.shape == (BATCH, heads, TIME, head_width)
    q_proj = ours.score.q_proj.weight.view(heads, key_width, width)
    k_proj = ours.score.k_proj.weight.view(heads, key_width, width)
    v_proj = ours.v_proj.weight.view(heads, head_width, width)
    for b in range(BATCH):
        for i in range(TIME):
            mixtures = []
            for h in range(heads):
                query = q_proj[h] @ inputs[b, i]
                scores = [scale * (query @ (k_proj[h] @ token)) for token in inputs[b]]
                masses = torch.stack(scores).exp()
                values = [v_proj[h] @ token for token in inputs[b]]
                mixtures.append(
                    sum(mass * value for mass, value in zip(masses, values, strict=True))
                    / masses.sum()
                )
            expected = ours.out_proj.weight @ torch.cat(mixtures)
            assert_close(output[b, i], expected, rtol=0, atol=1e-12)


@given(
    st.integers(0, 2**31),
    st.permutations(range(TIME)),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([DotConfig(), ScaledConfig(), AdditiveConfig(), MergedConfig()]),
)
@settings(max_examples=40)
def test_without_positions_permuted_tokens_give_permuted_outputs(
    seed: int, order: list[int], heads: int, batch: int, score: ScoreConfig
) -> None:
    torch.manual_seed(seed)
    key_width = None if isinstance(score, MergedConfig) else 5
    attention = built(11, heads=heads, key_width=key_width, head_width=3, score=score)
    inputs = torch.randn(batch, TIME, 11, dtype=torch.float64)
    straight, _ = attention(inputs, EVERYTHING)
    permuted, _ = attention(inputs[:, order], EVERYTHING)
    assert_close(permuted, straight[:, order], rtol=0, atol=1e-12)


def test_dropout_acts_only_in_training() -> None:
    attention = built(11, heads=3, key_width=5, head_width=7, dropout=0.5)
    inputs = torch.randn(BATCH, TIME, 11, dtype=torch.float64)
    first, other = (attention.train()(inputs, PAST)[0] for _ in range(2))
    assert not torch.equal(first, other)
    first, other = (attention.eval()(inputs, PAST)[0] for _ in range(2))
    assert torch.equal(first, other)


@pytest.mark.parametrize("score", EVERY_SCORE, ids=name)
@pytest.mark.parametrize("kind", [AlibiConfig(), RelativeConfig(buckets=4, max_distance=5)])
@torch.no_grad()
def test_a_positional_bias_is_added_to_every_score(
    score: ScoreConfig, kind: AlibiConfig | RelativeConfig
) -> None:
    key_width = None if isinstance(score, MergedConfig) else 4
    attention = built(11, heads=3, key_width=key_width, head_width=5, score=score)
    inputs = torch.randn(BATCH, TIME, 11, dtype=torch.float64)
    slots = PAST.query_positions[..., None]
    bias = kind.build(SIZES).double().bias(slots, slots)
    cache = attention.project_kv(inputs)
    without, with_it = (
        attention_weights(attention.terms(inputs, cache, context), CAUSAL)
        for context in (PAST, replace(PAST, bias=bias))
    )
    expected = without * bias.exp()
    expected = expected / expected.sum(dim=-1, keepdim=True)
    assert_close(with_it, expected.expand_as(with_it), rtol=0, atol=1e-12)
    assert (with_it - without).abs().max() > 1e-3
