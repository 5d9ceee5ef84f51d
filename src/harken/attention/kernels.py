"""Attention kernels: c_i = sum over t of a_it v_t, where a_i is the softmax of the scores of i.

`eager_attention` follows the formula and returns the weights; `fused_attention` takes the same
arguments and calls PyTorch's fused kernel where possible. A score that is not a product of queries
and keys has only a `bias`. The output is zero for a query whose keys are all masked. Keys and
values may have fewer heads than queries (grouped-query attention).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from harken.attention.dropout import BlockAttention, keep_mask
from harken.attention.masks import Mask, dense_mask


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreTerms:
    """Terms of the scores: queries and keys, a bias, or both. Scores are scale * q . k + bias."""

    queries: Float[Tensor, "B k T U"] | None = None
    keys: Float[Tensor, "B kv_heads S U"] | None = None
    scale: float = 1.0
    bias: Float[Tensor, "#B #k T S"] | None = None


@dataclass(frozen=True, slots=True)
class AttentionOutput:
    """Weighted means of the values, and the weights before dropout."""

    output: Float[Tensor, "B k T I"]
    weights: Float[Tensor, "B k T S"]


AttentionKernel = Callable[[ScoreTerms, Tensor, Mask, float], Tensor]
"""(terms, values B kv_heads S I, mask, dropout of weights) -> B k T I"""


def repeat_kv(heads: int, shared: Float[Tensor, "B kv_heads S U"]) -> Float[Tensor, "B k S U"]:
    """Repeat keys or values for the heads that share them."""
    batch, kv_heads, time, width = shared.shape
    if kv_heads == heads:
        return shared
    repeated = shared[:, :, None].expand(batch, kv_heads, heads // kv_heads, time, width)
    return repeated.reshape(batch, heads, time, width)


def attention_weights(terms: ScoreTerms, mask: Mask) -> Float[Tensor, "B k T S"]:
    """Return the weights. They sum to one for each query, or to zero if all keys are masked."""
    scores = terms.bias
    if terms.queries is not None and terms.keys is not None:
        # Scale the queries, which have fewer elements than the scores.
        queries, keys = terms.queries * terms.scale, terms.keys
        product = queries @ repeat_kv(queries.shape[1], keys).mT
        scores = product if scores is None else product + scores
    assert scores is not None, "a score has queries and keys, a bias, or both"
    if mask.visible is None and not mask.causal:
        return scores.softmax(dim=-1)
    visible = dense_mask(mask, scores.shape[-2], scores.shape[-1], scores.device)
    scores = scores.masked_fill(~visible, float("-inf"))
    no_key = ~visible.any(dim=-1, keepdim=True)  # where softmax would give NaN
    # Make these rows finite before the softmax: in the gradient, NaN times zero is NaN.
    return scores.masked_fill(no_key, 0.0).softmax(dim=-1).masked_fill(no_key, 0.0)


def eager_attention(
    terms: ScoreTerms, values: Float[Tensor, "B kv_heads S I"], mask: Mask, dropout: float = 0.0
) -> AttentionOutput:
    """Compute attention by its formula; return the weighted means and the weights."""
    weights = attention_weights(terms, mask)
    # Weights from a bias alone may be shared by the batch and by the heads (axes of size 1).
    heads = max(weights.shape[1], values.shape[1])
    weights = weights.expand(values.shape[0], heads, -1, -1)
    dropped = weights
    if dropout > 0:
        keep, gain = keep_mask(tuple(weights.shape), dropout, weights.device)
        dropped = weights * keep * gain
    return AttentionOutput(dropped @ repeat_kv(heads, values), weights)


def dropout_attention(
    terms: ScoreTerms, values: Float[Tensor, "B kv_heads S I"], mask: Mask, dropout: float
) -> Float[Tensor, "B k T I"]:
    """Return the output of `eager_attention` for the same random numbers, with less memory."""
    queries, keys, bias = terms.queries, terms.keys, terms.bias
    if (
        queries is None
        or keys is None
        or (bias is not None and bias.requires_grad)
        or queries.device.type != "cpu"
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
    ):
        return eager_attention(terms, values, mask, dropout).output
    batch, heads, length, _ = queries.shape
    num_keys = keys.shape[2]
    is_causal = mask.causal and mask.visible is None and num_keys >= length
    no_key = None
    if mask.visible is not None or (mask.causal and not is_causal):
        visible = dense_mask(mask, length, num_keys, queries.device)
        zeros = queries.new_zeros(visible.shape) if bias is None else bias
        bias = zeros.masked_fill(~visible, float("-inf"))
        has_key = visible.any(dim=-1, keepdim=True)
        no_key = None if has_key.all() else ~has_key
    keep, gain = keep_mask((batch, heads, length, num_keys), dropout, queries.device)
    keys, values = repeat_kv(heads, keys), repeat_kv(heads, values)
    output: Tensor = BlockAttention.apply(  # type: ignore[no-untyped-call]
        queries, keys, values, terms.scale, bias, no_key, is_causal, keep, gain
    )
    return output


def fused_attention(
    terms: ScoreTerms, values: Float[Tensor, "B kv_heads S I"], mask: Mask, dropout: float = 0.0
) -> Float[Tensor, "B k T I"]:
    """Return the weighted means, in memory linear in T and S where possible."""
    queries, keys, bias = terms.queries, terms.keys, terms.bias
    learned_bias = bias is not None and bias.requires_grad
    if dropout > 0:
        return dropout_attention(terms, values, mask, dropout)
    if queries is None or keys is None or learned_bias:
        # There is no product to fuse, or the fused kernel would be slower, because it computes all
        # weights if the bias needs a gradient.
        return eager_attention(terms, values, mask).output
    # Unprojected keys or values have one head, even if the others have several.
    kv_heads, head_width = max(keys.shape[1], values.shape[1]), values.shape[-1]
    keys, values = repeat_kv(kv_heads, keys), repeat_kv(kv_heads, values)
    missing = queries.shape[-1] - head_width
    if missing > 0:  # the fused kernel requires equal widths; zeros do not change the result
        values = F.pad(values, (0, missing))
    elif missing < 0:
        queries, keys = F.pad(queries, (0, -missing)), F.pad(keys, (0, -missing))
    grouped = kv_heads != queries.shape[1]
    attn_mask = None
    is_causal = mask.causal and mask.visible is None and bias is None
    # With cached keys, the flag of PyTorch would align the first query with the first key.
    is_causal = is_causal and queries.shape[2] == keys.shape[2]
    if not is_causal:
        if mask.visible is not None or mask.causal:
            attn_mask = dense_mask(mask, queries.shape[2], keys.shape[2], queries.device)
        if bias is not None:
            hidden = None if attn_mask is None else ~attn_mask
            attn_mask = bias if hidden is None else bias.masked_fill(hidden, float("-inf"))
        if attn_mask is not None and attn_mask.shape[-2] != queries.shape[2]:  # a padding mask
            attn_mask = attn_mask.expand(-1, -1, queries.shape[2], -1)
    # The output is zero where all keys are masked.
    output = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=terms.scale,
        enable_gqa=grouped,
    )
    return output if missing <= 0 else output[..., :head_width]
