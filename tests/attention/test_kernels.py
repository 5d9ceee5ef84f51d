import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from harken.attention import dropout as blocks
from harken.attention.kernels import ScoreTerms, eager_attention, fused_attention
from harken.attention.masks import CAUSAL, NO_MASK, Mask, build_mask, dense_mask

Draw = Callable[[str], Tensor]
BATCH, HEADS, KEY_WIDTH = 2, 3, 11


def causal_table(queries: int, keys: int) -> Mask:
    last = max(queries, keys)
    return build_mask(
        "causal", torch.arange(last - queries, last)[None], torch.arange(last - keys, last)[None]
    )


def strict(queries: int, keys: int) -> Mask:
    return build_mask("strictly_causal", torch.arange(queries)[None], torch.arange(keys)[None])


def packed(queries: int, keys: int) -> Mask:
    firsts = torch.tensor([[2], [3]])  # tokens of the first of two texts in each row
    query_slots, key_slots = torch.arange(queries), torch.arange(keys)
    return build_mask(
        "causal",
        torch.where(query_slots < firsts, query_slots, query_slots - firsts),
        torch.where(key_slots < firsts, key_slots, key_slots - firsts),
        query_documents=(query_slots >= firsts).long(),
        key_documents=(key_slots >= firsts).long(),
    )


def padding(queries: int, keys: int) -> Mask:
    present = torch.arange(keys) < torch.tensor([[keys - 3], [keys]])
    return build_mask(
        "bidirectional", torch.arange(queries)[None], torch.arange(keys)[None], present=present
    )


def with_empty_rows(queries: int, keys: int) -> Mask:
    visible = torch.rand(BATCH, 1, queries, keys) < 0.5
    visible[..., 0] = True
    visible[0, :, 1] = False
    visible[1, :, queries - 1] = False
    return Mask(visible=visible)


MASKS = {
    "none": lambda queries, keys: NO_MASK,
    "causal flag": lambda queries, keys: CAUSAL,
    "causal table": causal_table,
    "strictly_causal": strict,
    "packed": packed,
    "padding": padding,
    "empty rows": with_empty_rows,
}
TERMS = ["product", "product and bias", "bias", "bias of all rows"]


def terms_of(kind: str, queries: int, keys: int) -> ScoreTerms:
    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    product = {
        "queries": leaf(BATCH, HEADS, queries, KEY_WIDTH),
        "keys": leaf(BATCH, HEADS, keys, KEY_WIDTH),
        "scale": 0.7,
    }
    if kind == "product":
        return ScoreTerms(**product)
    if kind == "product and bias":
        return ScoreTerms(**product, bias=leaf(1, HEADS, queries, keys))
    batch = 1 if kind == "bias of all rows" else BATCH
    return ScoreTerms(bias=leaf(batch, HEADS, queries, keys))


def loop(terms: ScoreTerms, values: Tensor, visible: Tensor) -> Tensor:
    """Compute the weighted means one number at a time."""
    batch, heads, keys, width = values.shape
    outputs = torch.zeros(batch, heads, visible.shape[2], width, dtype=torch.float64)
    visible = visible.expand(batch, heads, -1, -1)
    bias = terms.bias
    if bias is not None:
        bias = bias.expand(batch, heads, -1, -1)
    for b in range(batch):
        for h in range(heads):
            for i in range(visible.shape[2]):
                masses = [0.0] * keys
                for t in range(keys):
                    score = 0.0 if bias is None else bias[b, h, i, t].item()
                    if terms.queries is not None:
                        query, key = terms.queries[b, h, i], terms.keys[b, h, t]
                        score += terms.scale * math.fsum((query * key).tolist())
                    masses[t] = math.exp(score) if visible[b, h, i, t] else 0.0
                whole = math.fsum(masses)
                for t in range(keys):
                    if masses[t] > 0:
                        outputs[b, h, i] += masses[t] / whole * values[b, h, t]
    return outputs


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_pytorch(draw: Draw, causal: bool) -> None:
    queries, keys, values = draw("BkTU"), draw("BkSU"), draw("BkSI")
    visible = torch.ones(1, 1, 5, 7, dtype=torch.bool).tril(diagonal=2)
    mask = CAUSAL if causal else NO_MASK
    terms = ScoreTerms(queries=queries, keys=keys, scale=11**-0.5)
    theirs = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=visible if causal else None
    )
    assert_close(eager_attention(terms, values, mask).output, theirs, rtol=0, atol=1e-12)
    assert_close(fused_attention(terms, values, mask), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", TERMS)
@pytest.mark.parametrize("mask_kind", MASKS)
@torch.no_grad()
def test_eager_equals_a_loop(draw: Draw, mask_kind: str, kind: str) -> None:
    mask, values = MASKS[mask_kind](5, 7), draw("BkSI")
    terms = terms_of(kind, 5, 7)
    visible = dense_mask(mask, 5, 7, values.device)
    ours = eager_attention(terms, values, mask)
    assert_close(ours.output, loop(terms, values, visible), rtol=0, atol=1e-12)
    seen = visible.any(dim=-1).expand(2, 3, -1)
    assert_close(ours.weights.sum(dim=-1), seen.double(), rtol=0, atol=1e-12)
    assert not ours.weights.masked_select(~visible).any()


@pytest.mark.parametrize("width", [KEY_WIDTH, 13])  # only equal widths reach the fused kernel
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (5, 7), (7, 5)])
@pytest.mark.parametrize("kind", TERMS)
@pytest.mark.parametrize("mask_kind", MASKS)
def test_fused_equals_eager_forward_and_backward(
    mask_kind: str, kind: str, queries: int, keys: int, width: int
) -> None:
    mask, terms = MASKS[mask_kind](queries, keys), terms_of(kind, queries, keys)
    values = torch.randn(BATCH, HEADS, keys, width, dtype=torch.float64, requires_grad=True)
    fused = fused_attention(terms, values, mask)
    eager = eager_attention(terms, values, mask).output
    assert_close(fused, eager, rtol=0, atol=1e-10)
    leaves = [values, terms.queries, terms.keys, terms.bias]
    leaves = [leaf for leaf in leaves if leaf is not None]
    downstream = torch.randn_like(fused)
    ours = torch.autograd.grad(fused, leaves, downstream)
    theirs = torch.autograd.grad(eager, leaves, downstream)
    assert_close(ours, theirs, rtol=0, atol=1e-10)
    visible = dense_mask(mask, queries, keys, values.device)
    empty = ~visible.any(dim=-1).expand(BATCH, HEADS, -1)
    for output in (fused, eager):
        assert torch.equal(output[empty], torch.zeros_like(output[empty]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", TERMS)
@pytest.mark.parametrize("attend", [fused_attention, lambda *call: eager_attention(*call).output])
def test_queries_without_keys_give_exact_zeros_and_finite_gradients(
    attend: Callable[..., Tensor], kind: str, dtype: torch.dtype
) -> None:
    terms = terms_of(kind, 7, 7)
    leaves = [leaf for leaf in (terms.queries, terms.keys, terms.bias) if leaf is not None]
    terms = ScoreTerms(
        queries=None if terms.queries is None else terms.queries.to(dtype),
        keys=None if terms.keys is None else terms.keys.to(dtype),
        bias=None if terms.bias is None else terms.bias.to(dtype),
    )
    output = attend(terms, torch.randn(BATCH, HEADS, 7, KEY_WIDTH, dtype=dtype), strict(7, 7))
    assert torch.equal(output[:, :, 0], torch.zeros_like(output[:, :, 0]))
    assert output[:, :, 1:].abs().min() > 0
    # Anomaly detection raises at a NaN on the way, even where a later mask would hide it.
    with torch.autograd.set_detect_anomaly(True):
        gradients = torch.autograd.grad(output.square().sum(), leaves)
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert gradient.any()


@pytest.mark.parametrize("attend", [fused_attention, lambda *call: eager_attention(*call).output])
def test_dropout_zeroes_weights_and_scales_the_others(
    draw: Draw, attend: Callable[..., Tensor]
) -> None:
    terms = ScoreTerms(queries=draw("BkTU"), keys=draw("BkSU"))
    identity = torch.eye(7, dtype=torch.float64).expand(2, 3, 7, 7)
    whole = eager_attention(terms, identity, NO_MASK).weights
    left = attend(terms, identity, NO_MASK, 0.25)
    is_left = left != 0
    assert 0.6 < is_left.double().mean() < 0.9
    assert_close(left[is_left], whole[is_left] / 0.75, rtol=0, atol=1e-12)


def test_returned_weights_are_those_before_dropout(draw: Draw) -> None:
    terms, values = ScoreTerms(queries=draw("BkTU"), keys=draw("BkSU")), draw("BkSI")
    whole = eager_attention(terms, values, CAUSAL).weights
    assert torch.equal(eager_attention(terms, values, CAUSAL, 0.9).weights, whole)


@pytest.mark.parametrize("block_elements", [1, 1 << 18])  # one row of the batch, or all
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (5, 7), (7, 5)])
@pytest.mark.parametrize("kind", ["product", "product and bias"])
@pytest.mark.parametrize("mask_kind", MASKS)
def test_dropout_in_blocks_equals_eager_forward_and_backward(
    monkeypatch: pytest.MonkeyPatch,
    mask_kind: str,
    kind: str,
    queries: int,
    keys: int,
    block_elements: int,
) -> None:
    """The gradient of the eager formula is that of autograd, for the same mask in float64."""
    monkeypatch.setattr(blocks, "BLOCK_QUERIES", 3)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", block_elements)
    mask, terms = MASKS[mask_kind](queries, keys), terms_of(kind, queries, keys)
    values = torch.randn(BATCH, 1, keys, 13, dtype=torch.float64, requires_grad=True)
    bias = None if terms.bias is None else terms.bias.detach()
    terms = replace(terms, bias=bias)
    leaves = [values, terms.queries, terms.keys]
    downstream = torch.randn(BATCH, HEADS, queries, 13, dtype=torch.float64)
    results = []
    for attend in (fused_attention, lambda *call: eager_attention(*call).output):
        torch.manual_seed(17)
        output = attend(terms, values, mask, 0.4)
        results.append((output, *torch.autograd.grad(output, leaves, downstream)))
    assert results[0][0].grad_fn.name() != results[1][0].grad_fn.name()
    for ours, theirs in zip(*results, strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_weights_are_dropped_independently() -> None:
    """Rows, heads, queries and keys, at the distances that share a random number of 64 bits."""
    torch.manual_seed(19)
    probability, shape = 0.3, (29, 4, 64, 67)
    keep, gain = blocks.keep_mask(shape, probability, torch.device("cpu"))
    assert gain == pytest.approx(1 / (1 - probability), abs=1e-5)
    dropped = (~keep).double()
    count = dropped.numel()
    spread = (probability * (1 - probability) / count) ** 0.5
    assert dropped.mean().item() == pytest.approx(probability, abs=4 * spread + 1e-5)
    centered = (dropped - probability) / (probability * (1 - probability)) ** 0.5
    for axis in range(4):
        for distance in (1, 2, 3):
            size = shape[axis] - distance
            pairs = centered.narrow(axis, 0, size) * centered.narrow(axis, distance, size)
            assert pairs.mean().abs() < 4 / pairs.numel() ** 0.5


def test_mean_and_variance_over_masks_are_those_of_dropout() -> None:
    """E c = a v, and Var c = sum of (a_t v_t)^2 p / (1 - p)."""
    torch.manual_seed(23)
    draws, probability = 4099, 0.3
    queries, keys, values = (torch.randn(1, 2, 5, 7, dtype=torch.float64) for _ in range(3))
    terms = ScoreTerms(
        queries=queries.expand(draws, -1, -1, -1), keys=keys.expand(draws, -1, -1, -1)
    )
    outputs = fused_attention(terms, values.expand(draws, -1, -1, -1), CAUSAL, probability)
    whole = eager_attention(ScoreTerms(queries=queries, keys=keys), values, CAUSAL)
    terms_squared = (whole.weights[0, ..., None] * values[0, :, None]).square().sum(dim=-2)
    variance = terms_squared * probability / (1 - probability)
    error = (outputs.mean(dim=0) - whole.output[0]).abs()
    assert (error < 5 * (variance / draws).sqrt() + 1e-4 * whole.output[0].abs()).all()
    assert_close(outputs.var(dim=0), variance, rtol=0.2, atol=0)
