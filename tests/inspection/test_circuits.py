"""Circuits compared with explicit matrices and with the scores of the model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from harken.attention.context import attention_context, build_position
from harken.attention.head import LowRank
from harken.attention.masks import NO_MASK
from harken.attention.multihead import AttentionContext, MultiHead, MultiHeadConfig
from harken.attention.positions import AlibiConfig
from harken.attention.scores import (
    DotConfig,
    MergedConfig,
    ScaledConfig,
    ScoreConfig,
    TransformerXLConfig,
)
from harken.errors import UserError
from harken.inspection.circuits import (
    copying_score,
    effective_rank,
    output_value,
    query_key,
    singular_values,
)

HEADS, GROUPS, WIDTH, KEY_WIDTH, HEAD_WIDTH, TIME = 6, 3, 14, 4, 5, 7
PRODUCTS: list[ScoreConfig] = [DotConfig(), ScaledConfig(), MergedConfig(), TransformerXLConfig()]
EXACT = {"rtol": 0, "atol": 1e-10}


def whole(product: LowRank) -> Tensor:
    """The matrices themselves."""
    return product.left.mT @ product.right


def random(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).double()


def attention_of(score: ScoreConfig, width: int = WIDTH, **settings: object) -> MultiHead:
    merged = isinstance(score, MergedConfig)
    sizes = {"heads": HEADS, "kv_heads": GROUPS, "head_width": HEAD_WIDTH, "bias": True}
    config = MultiHeadConfig(
        score=score, **{**sizes, "key_width": None if merged else KEY_WIDTH, **settings}
    )
    attention = config.build(width, TIME).double()
    with torch.no_grad():
        for seed, parameter in enumerate(attention.parameters()):
            parameter.copy_(0.5 * random(*parameter.shape, seed=seed))
    return attention


def model_scores(attention: MultiHead, tokens: Tensor, context: AttentionContext) -> Tensor:
    """Return the scores before the softmax."""
    seen = attention.project_kv(tokens, context.rotation)
    terms = attention.terms(tokens, seen, context)
    keys = terms.keys.repeat_interleave(HEADS // terms.keys.shape[1], dim=1)
    scores = terms.scale * terms.queries @ keys.mT
    return scores if terms.bias is None else scores + terms.bias


@pytest.mark.parametrize("score", PRODUCTS[:3], ids=lambda score: score.kind)
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


@pytest.mark.parametrize("settings", [{}, {"head_width": None, "v_proj": False}])
@torch.no_grad()
def test_what_heads_write_adds_up_to_the_output(settings: dict[str, object]) -> None:
    """With a single token, the output of a head is W_OV of that token."""
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
def test_without_an_output_projection_heads_are_concatenated() -> None:
    attention = attention_of(DotConfig(), out_proj=False, kv_heads=None, bias=False)
    matrices = whole(output_value(attention))
    assert matrices.shape == (HEADS, HEADS * HEAD_WIDTH, WIDTH)
    assert_close(matrices.sum(dim=0), attention.v_proj.weight, **EXACT)
    assert not matrices[1, :HEAD_WIDTH].any()


@pytest.mark.parametrize("score", PRODUCTS, ids=lambda score: score.kind)
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
        # The zero eigenvalues of a defective matrix are inexact.
        assert_close(copying_score(product), share, rtol=0, atol=1e-6)


@given(rank=st.integers(1, 5), scale=st.floats(1e-3, 1e3))
def test_equal_values_count_one_each(rank: int, scale: float) -> None:
    values = torch.zeros(1, 7, dtype=torch.float64)
    values[0, :rank] = scale
    assert_close(effective_rank(values), torch.tensor([float(rank)]).double())


def test_a_head_that_copies_and_one_that_negates() -> None:
    own = torch.eye(5, dtype=torch.float64)[:3].expand(2, -1, -1)
    signs = torch.tensor([1.0, -1.0]).double()[:, None, None]
    offsets = torch.zeros(2, 3).double()
    assert copying_score(LowRank(signs * own, own, offsets, offsets)).tolist() == [1.0, -1.0]


def test_attention_without_matrices_is_refused() -> None:
    attention = attention_of(
        DotConfig(), heads=1, kv_heads=1, head_width=None,
        v_proj=False, out_proj=False,
    )  # fmt: skip
    with pytest.raises(UserError, match="no output-value matrix"):
        output_value(attention)
