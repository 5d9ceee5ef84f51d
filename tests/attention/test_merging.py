"""One matrix in place of two gives the same attention, and splits as well as its rank allows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.attention.masks import CAUSAL, NO_MASK, Mask
from harken.attention.merging import merge_pair, split_merged
from harken.attention.multihead import MultiHead, MultiHeadConfig
from harken.attention.scores import DotConfig, MergedConfig, ScaledConfig, ScoreConfig
from small_layers import context_of, randomized

BATCH, HEADS, TIME, KEYS = 2, 3, 7, 5
WIDTH, MEMORY_WIDTH, HEAD_WIDTH = 11, 13, 17
seeds = st.integers(0, 2**31)


def attention(
    score: ScoreConfig, key_width: int | None, memory_width: int, kv_heads: int = HEADS
) -> MultiHead:
    config = MultiHeadConfig(
        heads=HEADS,
        key_width=key_width,
        head_width=HEAD_WIDTH,
        kv_heads=kv_heads,
        score=score,
    )
    return randomized(config.build(WIDTH, TIME, memory_width), std=0.5)


def look(module: MultiHead, inputs: Tensor, memory: Tensor, mask: Mask) -> Tensor:
    context = context_of(mask, inputs.shape[1], memory.shape[1])
    return module.attend(inputs, module.project_kv(memory), context)


def matrices(module: MultiHead, key_width: int) -> tuple[Tensor, Tensor]:
    """W_Q and W_K of every head; heads that share keys have the same W_K."""
    queries = module.score.q_proj.weight.unflatten(0, (HEADS, key_width))
    keys = module.score.k_proj.weight.unflatten(0, (module.kv_heads, key_width))
    return queries, keys.repeat_interleave(HEADS // module.kv_heads, dim=0)


@pytest.mark.parametrize(("score", "scale"), [(DotConfig(), 1.0), (ScaledConfig(), 5**-0.5)])
@pytest.mark.parametrize("memory_width", [WIDTH, MEMORY_WIDTH])
@pytest.mark.parametrize("kv_heads", [HEADS, 1])
@torch.no_grad()
def test_merging_changes_no_output(
    score: ScoreConfig, scale: float, memory_width: int, kv_heads: int
) -> None:
    pair = attention(score, 5, memory_width, kv_heads)
    merged = attention(MergedConfig(), None, memory_width, kv_heads)
    merged.v_proj, merged.out_proj = pair.v_proj, pair.out_proj
    merged.score.weight.copy_(merge_pair(*matrices(pair, 5), scale) / merged.score.scale)
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    memory = torch.randn(BATCH, KEYS, memory_width, dtype=torch.float64)
    cases = [(memory, NO_MASK), (inputs, CAUSAL)] if memory_width == WIDTH else [(memory, NO_MASK)]
    for keys, mask in cases:
        ours, theirs = (look(module, inputs, keys, mask) for module in (merged, pair))
        assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("key_width", [5, 7, 11, 19])
@pytest.mark.parametrize("memory_width", [WIDTH, MEMORY_WIDTH])
@torch.no_grad()
def test_splitting_a_merged_pair_changes_no_output(key_width: int, memory_width: int) -> None:
    merged = attention(MergedConfig(), None, memory_width)
    rank_five = merge_pair(*matrices(attention(DotConfig(), 5, memory_width), 5), 0.7)
    merged.score.weight.copy_(rank_five / merged.score.scale)
    split = split_merged(rank_five, key_width)
    assert split.truncation.abs().max() < 1e-12
    assert split.queries.shape == (HEADS, key_width, WIDTH)
    assert split.keys.shape == (HEADS, key_width, memory_width)
    pair = attention(DotConfig(), key_width, memory_width)
    pair.v_proj, pair.out_proj = merged.v_proj, merged.out_proj
    pair.score.q_proj.weight.copy_(split.queries.flatten(0, 1))
    pair.score.k_proj.weight.copy_(split.keys.flatten(0, 1))
    inputs = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    memory = torch.randn(BATCH, KEYS, memory_width, dtype=torch.float64)
    ours, theirs = (look(score, inputs, memory, NO_MASK) for score in (pair, merged))
    assert_close(ours, theirs, rtol=0, atol=1e-11)


@given(seeds, st.integers(1, 13), st.integers(1, 11), st.integers(1, 13))
@settings(max_examples=60)
def test_what_is_left_out_bounds_the_error_of_a_score(
    seed: int, key_width: int, width: int, memory_width: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    merged = normal(HEADS, width, memory_width)
    split = split_merged(merged, key_width)
    tokens, other = normal(TIME, width), normal(KEYS, memory_width)
    error = (tokens @ (merged - split.queries.mT @ split.keys) @ other.T).abs()
    lengths = tokens.norm(dim=-1)[:, None] * other.norm(dim=-1)
    assert (error <= split.truncation[:, None, None] * lengths + 1e-12).all()
    if key_width < min(width, memory_width):  # two tokens that meet the bound
        left, values, right = torch.linalg.svd(merged)
        worst_one, worst_other = left[:, :, key_width], right[:, key_width]
        missing = merged - split.queries.mT @ split.keys
        worst = torch.einsum("kj,kjm,km->k", worst_one, missing, worst_other)
        assert_close(worst, values[:, key_width], rtol=0, atol=1e-11)
        assert_close(worst, split.truncation, rtol=0, atol=1e-11)
    else:
        assert not split.truncation.any()


@pytest.mark.parametrize(("width", "key_width"), [(22, 11), (22, 7), (22, 13)])
def test_counts_of_weights_a_head(width: int, key_width: int) -> None:
    def count(score: ScoreConfig, given: int | None) -> float:
        config = MultiHeadConfig(heads=HEADS, head_width=5, key_width=given, score=score)
        parameters = config.build(width, TIME).score.parameters()
        return sum(parameter.numel() for parameter in parameters) / HEADS

    pair, merged = count(ScaledConfig(), key_width), count(MergedConfig(), None)
    assert (pair, merged) == (2 * key_width * width, width**2)
    assert (pair == merged) == (2 * key_width == width)
    assert (pair < merged) == (2 * key_width < width)
