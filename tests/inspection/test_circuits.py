"""Products of a head's weights against matrices written out, and scores against the model's own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.attention.compatibility import conflict
from harken.attention.context import attention_context, build_position
from harken.attention.low_rank import LowRank
from harken.attention.masks import NO_MASK
from harken.attention.multihead import AttentionContext, MultiHead, MultiHeadConfig
from harken.attention.positions import (
    AlibiConfig,
    FourierConfig,
    LearnedConfig,
    PositionConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidConfig,
    model_width,
)
from harken.attention.scores import (
    DotConfig,
    MergedConfig,
    ScaledConfig,
    ScoreConfig,
)
from harken.attention.transformer_xl import TransformerXLConfig
from harken.errors import UserError
from harken.inspection.circuits import (
    Streams,
    copying,
    effective_rank,
    output_value,
    query_key,
    singular_values,
    split_scores,
    through,
    whole,
)
from harken.layers.norm import NormConfig

HEADS, GROUPS, WIDTH, KEY_WIDTH, HEAD_WIDTH, TIME = 6, 3, 14, 4, 5, 7
PRODUCTS: list[ScoreConfig] = [DotConfig(), ScaledConfig(), MergedConfig(), TransformerXLConfig()]
EXACT = {"rtol": 0, "atol": 1e-10}


def random(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).double()


def attention_of(score: ScoreConfig, width: int = WIDTH, **settings: object) -> MultiHead:
    merged = isinstance(score, MergedConfig)
    sizes = {"heads": HEADS, "key_value_heads": GROUPS, "head_width": HEAD_WIDTH, "bias": True}
    config = MultiHeadConfig(
        score=score, **{**sizes, "key_width": None if merged else KEY_WIDTH, **settings}
    )
    attention = config.build(width, TIME).double()
    with torch.no_grad():
        for seed, parameter in enumerate(attention.parameters()):
            parameter.copy_(0.5 * random(*parameter.shape, seed=seed))
    return attention


def model_scores(attention: MultiHead, tokens: Tensor, context: AttentionContext) -> Tensor:
    """What the kernel would take the softmax of."""
    seen = attention.project_kv(tokens, context.rotation)
    terms = attention.terms(tokens, seen, context)
    keys = terms.keys.repeat_interleave(HEADS // terms.keys.shape[1], dim=1)
    scores = terms.scale * terms.queries @ keys.mT
    return scores if terms.bias is None else scores + terms.bias


@pytest.mark.parametrize("score", PRODUCTS[:3], ids=lambda one: one.kind)
@torch.no_grad()
def test_the_score_is_that_of_the_factors_with_biases_and_shared_keys(score: ScoreConfig) -> None:
    attention, tokens = attention_of(score), random(2, TIME, WIDTH)
    product = query_key(attention)
    position = build_position(AlibiConfig(), MultiHeadConfig(heads=HEADS), WIDTH, TIME)
    slots = torch.arange(TIME)[None]
    context = attention_context(position, NO_MASK, slots, slots)
    scores = model_scores(attention, tokens, context) - context.bias
    for head in range(HEADS):
        for i in range(TIME):
            for t in range(TIME):
                query = product.left[head] @ tokens[1, i] + product.left_offset[head]
                key = product.right[head] @ tokens[1, t] + product.right_offset[head]
                assert_close(query @ key, scores[1, head, i, t], **EXACT)


@torch.no_grad()
def test_the_query_comes_first() -> None:
    attention = attention_of(DotConfig(), bias=False)
    queries = attention.score.q_proj.weight.view(HEADS, KEY_WIDTH, WIDTH)
    keys = attention.score.k_proj.weight.view(GROUPS, KEY_WIDTH, WIDTH)
    merged = whole(query_key(attention))
    x, y = random(WIDTH, seed=1), random(WIDTH, seed=2)
    assert_close(x @ merged[5] @ y, (queries[5] @ x) @ (keys[2] @ y), **EXACT)
    assert abs(y @ merged[5] @ x - x @ merged[5] @ y) > 0.1


@pytest.mark.parametrize("settings", [{}, {"head_width": None, "value_matrix": False}])
@torch.no_grad()
def test_what_heads_write_adds_up_to_the_output(settings: dict[str, object]) -> None:
    """Each head looks at one token only, so that its output is W_OV of that token."""
    attention = attention_of(ScaledConfig(), **settings)
    token = random(1, 1, WIDTH)
    slots = torch.zeros(1, 1, dtype=torch.long)
    position = build_position(AlibiConfig(), MultiHeadConfig(heads=HEADS), WIDTH, TIME)
    expected, _ = attention(token, attention_context(position, NO_MASK, slots, slots))
    product = output_value(attention)
    written = whole(product) @ token[0, 0] + torch.einsum(
        "hij,hi->hj", product.left, product.right_offset
    )
    assert_close(written.sum(dim=0) + attention.out_proj.bias, expected[0, 0], **EXACT)


@torch.no_grad()
def test_heads_side_by_side_write_to_places_of_their_own() -> None:
    attention = attention_of(DotConfig(), output_matrix=False, key_value_heads=None, bias=False)
    matrices = whole(output_value(attention))
    assert matrices.shape == (HEADS, HEADS * HEAD_WIDTH, WIDTH)
    assert_close(matrices.sum(dim=0), attention.v_proj.weight, **EXACT)
    assert not matrices[1, :HEAD_WIDTH].any()


@pytest.mark.parametrize("score", PRODUCTS, ids=lambda one: one.kind)
@torch.no_grad()
def test_spectra_are_those_of_the_whole_matrix(score: ScoreConfig) -> None:
    attention = attention_of(score)
    for product in (query_key(attention), output_value(attention)):
        values, matrices = singular_values(product), whole(product)
        expected = torch.linalg.svdvals(matrices)
        assert_close(values, expected[:, : values.shape[1]], **EXACT)
        assert (expected[:, values.shape[1] :] < 1e-10).all()
        eigenvalues = torch.linalg.eigvals(matrices)
        share = eigenvalues.sum(dim=-1).real / eigenvalues.abs().sum(dim=-1)
        assert_close(copying(product), share, rtol=0, atol=1e-6)  # zeros of a defective matrix blur


@given(rank=st.integers(1, 5), scale=st.floats(1e-3, 1e3))
def test_equal_values_count_one_each(rank: int, scale: float) -> None:
    values = torch.zeros(1, 7, dtype=torch.float64)
    values[0, :rank] = scale
    assert_close(effective_rank(values), torch.tensor([float(rank)]).double())


def test_a_head_that_copies_and_one_that_negates() -> None:
    own = torch.eye(5, dtype=torch.float64)[:3].expand(2, -1, -1)
    signs = torch.tensor([1.0, -1.0]).double()[:, None, None]
    offsets = torch.zeros(2, 3).double()
    assert copying(LowRank(signs * own, own, offsets, offsets)).tolist() == [1.0, -1.0]


def test_tokens_handed_on_as_they_are_are_refused() -> None:
    attention = attention_of(
        DotConfig(), heads=1, key_value_heads=1, head_width=None,
        value_matrix=False, output_matrix=False,
    )  # fmt: skip
    with pytest.raises(UserError, match="no value-output matrix"):
        output_value(attention)


POSITIONS: list[PositionConfig] = [
    LearnedConfig(),
    LearnedConfig(place="concat"),
    SinusoidConfig(),
    SinusoidConfig(place="concat"),
    FourierConfig(),
    RotaryConfig(),
    AlibiConfig(),
    RelativeConfig(buckets=4, farthest=6),
]
NORMS = [NormConfig(kind="layer"), NormConfig(kind="rms"), None]


def streams_at(
    position: PositionConfig, score: ScoreConfig = PRODUCTS[0]
) -> tuple[Streams, AttentionContext, int]:
    """Contents and places of two rows, as they come in, and the context of both."""
    width = model_width(position, WIDTH)
    key_width = None if isinstance(score, MergedConfig) else KEY_WIDTH
    sizes = MultiHeadConfig(heads=HEADS, key_width=key_width, score=score)
    kind = build_position(position, sizes, WIDTH, TIME).double()
    with torch.no_grad():
        for seed, parameter in enumerate(kind.parameters()):
            parameter.copy_(random(*parameter.shape, seed=seed + 50))
    slots = torch.arange(TIME)[None]
    content = random(2, TIME, WIDTH, seed=9)
    entered = kind.embed(content, slots[..., None])
    alone = kind.embed(torch.zeros_like(content), slots[..., None])
    context = attention_context(kind, NO_MASK, slots, slots)
    return Streams(entered - alone, alone), context, width


@pytest.mark.parametrize("norm", NORMS, ids=lambda one: "none" if one is None else one.kind)
@pytest.mark.parametrize(
    ("position", "score"),
    [
        pytest.param(position, score, id=f"{position.kind} {at} {score.kind}")
        for at, position in enumerate(POSITIONS)
        for score in PRODUCTS
        if conflict(score, position) is None
    ],
)
@torch.no_grad()
def test_four_parts_are_the_score(
    position: PositionConfig, score: ScoreConfig, norm: NormConfig | None
) -> None:
    streams, context, width = streams_at(position, score)
    attention = attention_of(score, width)
    tokens = streams.tokens
    if norm is not None:
        guard = norm.build(width).double()
        for seed, parameter in enumerate(guard.parameters()):
            parameter.copy_(1 + 0.3 * random(width, seed=seed))
        tokens, streams = guard(tokens), through(guard, streams)
    parts = split_scores(attention, streams, context)
    assert_close(parts.total, model_scores(attention, tokens, context), **EXACT)
    assert parts.content_content.std() > 0.1


@torch.no_grad()
def test_each_part_is_the_product_of_its_two_sides() -> None:
    """Against the factors of one head and one pair of tokens, the norm's scale frozen by hand."""
    streams, context, width = streams_at(SinusoidConfig())
    attention, guard = attention_of(ScaledConfig(), width), torch.nn.LayerNorm(width).double()
    guard.weight.copy_(1 + 0.3 * random(width, seed=3))
    guard.bias.copy_(random(width, seed=4))
    parts = split_scores(attention, through(guard, streams), context)
    product, head, i, t = query_key(attention), 4, 2, 5

    def behind(vector: Tensor, at: int) -> Tensor:
        token = streams.tokens[1, at]
        deviation = ((token - token.mean()).square().mean() + guard.eps).sqrt()
        return (vector - vector.mean()) / deviation * guard.weight

    query_content = product.left[head] @ behind(streams.content[1, i], i)
    query_place = product.left[head] @ (behind(streams.place[1, i], i) + guard.bias)
    query_place = query_place + product.left_offset[head]
    key_content = product.right[head] @ behind(streams.content[1, t], t)
    key_place = product.right[head] @ (behind(streams.place[1, t], t) + guard.bias)
    key_place = key_place + product.right_offset[head]
    at = (1, head, i, t)
    assert_close(parts.content_content[at], query_content @ key_content, **EXACT)
    assert_close(parts.content_position[at], query_content @ key_place, **EXACT)
    assert_close(parts.position_content[at], query_place @ key_content, **EXACT)
    assert_close(parts.position_position[at], query_place @ key_place, **EXACT)


@torch.no_grad()
def test_distance_alone_has_no_content_in_it() -> None:
    """Of `relative_product`: other contents at the same places leave it as it was."""
    streams, context, width = streams_at(AlibiConfig())
    attention = attention_of(TransformerXLConfig(), width)
    other = Streams(random(2, TIME, width, seed=77), streams.place)
    parts = [split_scores(attention, one, context) for one in (streams, other)]
    assert_close(parts[0].position_position, parts[1].position_position, **EXACT)
    assert (parts[0].content_position - parts[1].content_position).abs().max() > 0.1
