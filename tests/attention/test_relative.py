"""Positions inside the heads, compared with Hugging Face and with loops."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from harken.attention.relative import (
    AlibiConfig,
    PositionSizes,
    RelativeConfig,
    RotaryConfig,
    alibi_slopes,
    offset_buckets,
    rotate,
)

WHY = "the comparison with Hugging Face needs transformers"
HEADS = 3
QUERIES = torch.tensor([[4, 5], [0, 9]])[..., None]
KEYS = torch.tensor([[0, 1, 2, 3, 11], [3, 0, 1, 9, 2]])[..., None]
GRID = torch.cartesian_prod(torch.arange(3), torch.arange(5))[None]
over_all_axes = pytest.mark.parametrize(
    ("queries", "keys"), [(QUERIES[:1], KEYS[:1]), (QUERIES, KEYS), (GRID, GRID)]
)


def sizes(heads: int = HEADS, axes: int = 1, key_width: int = 4) -> PositionSizes:
    return PositionSizes(width=7, key_width=key_width, heads=heads, max_length=13, axes=axes)


@pytest.mark.parametrize("heads", range(1, 18))
def test_alibi_slopes_are_those_of_bloom(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom", reason=WHY)
    # Theirs is slope * key position, which differs from -slope * distance by a constant per query.
    theirs = bloom.build_alibi_tensor(torch.ones(1, 3), heads, torch.float32)
    assert theirs.shape == (heads, 1, 3)
    slopes = torch.tensor(alibi_slopes(heads))
    assert_close(slopes, theirs[:, 0, 1], rtol=1e-6, atol=0)
    at = torch.arange(3)[None, :, None]
    ours = AlibiConfig().build(sizes(heads)).bias(at, at)
    last = ours[0, :, -1]  # the last query comes after every key
    assert_close(last - last[:, :1], theirs[:, 0], rtol=0, atol=1e-6)


@over_all_axes
def test_alibi_equals_a_loop(queries: Tensor, keys: Tensor) -> None:
    alibi = AlibiConfig().build(sizes(axes=queries.shape[-1])).double()
    bias = alibi.bias(queries, keys)
    for b, h, i, t in product(*map(range, bias.shape)):
        distance = (queries[b, i] - keys[b, t]).abs().sum().item()
        expected = -alibi_slopes(HEADS)[h] * distance
        assert bias[b, h, i, t].item() == pytest.approx(expected, abs=1e-12)
    assert alibi.rotation(queries) is None
    assert not alibi.state_dict()


def bucket_sizes() -> st.SearchStrategy[tuple[int, int]]:
    return st.integers(4, 67).flatmap(
        lambda buckets: st.tuples(st.just(buckets), st.integers(buckets + 1, 8 * buckets))
    )


@given(bucket_sizes(), st.booleans())
@settings(max_examples=60)
def test_buckets_are_those_of_t5(counts: tuple[int, int], causal: bool) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason=WHY)
    buckets, max_distance = counts
    offsets = torch.cat((torch.arange(-700, 701), torch.tensor([-(10**6), 10**6])))
    theirs = t5.T5Attention._relative_position_bucket(
        offsets, bidirectional=not causal, num_buckets=buckets, max_distance=max_distance
    )
    ours = offset_buckets(offsets, buckets, max_distance, causal)
    assert torch.equal(ours, theirs)
    assert ours.min() >= 0
    assert ours.max() < buckets


def relative(axes: int = 1, causal: bool = False, buckets: int = 8) -> nn.Module:
    config = RelativeConfig(buckets=buckets, max_distance=19, causal=causal)
    built = config.build(sizes(axes=axes)).double()
    for table in built.tables:
        nn.init.normal_(table.weight)
    return built


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys", "past"), [(7, 7, 0), (5, 7, 2), (7, 5, 0)])
@torch.no_grad()
def test_relative_bias_is_that_of_t5(causal: bool, queries: int, keys: int, past: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason=WHY)
    ours = relative(causal=causal)
    config = t5.T5Config(
        d_model=7,
        d_kv=2,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=19,
        is_decoder=causal,
    )
    theirs = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    theirs.relative_attention_bias.weight.copy_(ours.tables[0].weight)
    at, keys_at = torch.arange(past, past + queries), torch.arange(keys)
    bias = ours.bias(at[None, :, None], keys_at[None, :, None])
    expected = theirs.compute_bias(queries, keys, past_seen_tokens=past)
    assert_close(bias, expected, rtol=0, atol=0)


@over_all_axes
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_relative_bias_equals_a_loop(queries: Tensor, keys: Tensor, causal: bool) -> None:
    kind = relative(axes=queries.shape[-1], causal=causal)
    bias = kind.bias(queries, keys)
    assert bias.shape == (len(queries), HEADS, queries.shape[1], keys.shape[1])
    for b, i, t in product(range(len(bias)), range(bias.shape[2]), range(bias.shape[3])):
        buckets = offset_buckets(keys[b, t] - queries[b, i], 8, 19, causal)
        rows = [table.weight[bucket] for table, bucket in zip(kind.tables, buckets, strict=True)]
        assert_close(bias[b, :, i, t], sum(rows), rtol=0, atol=1e-12)
    assert kind.rotation(queries) is None


def test_max_distance_must_exceed_the_buckets() -> None:
    with pytest.raises(ValueError, match=r"max_distance: expected above 8 \(buckets\), got 8"):
        RelativeConfig(buckets=8, max_distance=8)


@given(st.integers(0, 2**31), st.lists(st.integers(0, 500), min_size=5, max_size=5))
@settings(max_examples=20)
def test_rotary_is_that_of_llama(seed: int, at: list[int]) -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason=WHY)
    torch.manual_seed(seed)
    config = llama.LlamaConfig(hidden_size=30, num_attention_heads=HEADS, head_dim=10)
    assert config.rope_parameters["rope_theta"] == RotaryConfig().base
    queries, keys = torch.randn(2, 2, HEADS, 5, 10, dtype=torch.float64)
    places = torch.tensor([at, at[::-1]])
    cosine, sine = llama.LlamaRotaryEmbedding(config)(queries, places)
    theirs = llama.apply_rotary_pos_emb(queries, keys, cosine, sine)
    rotation = RotaryConfig().build(sizes(key_width=10)).rotation(places[..., None])
    assert_close(rotate(queries, rotation), theirs[0], rtol=0, atol=1e-4)
    assert_close(rotate(keys, rotation), theirs[1], rtol=0, atol=1e-4)
