"""Attention kernels: c_i = sum over t of a_it v_t, where a_i is the softmax of the scores of i.

`eager_attention` follows the formula and returns the weights; `fused_attention` takes the same
arguments and calls PyTorch's fused kernel where possible. A score that is not a product of queries
and keys is a `bias` alone. A query that may attend to no key yields zeros. Keys and values may have
fewer heads than queries (grouped-query attention).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

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
    """Weighted means of the values, and the weights."""

    output: Float[Tensor, "B k T I"]
    weights: Float[Tensor, "B k T S"]


AttentionKernel = Callable[[ScoreTerms, Tensor, Mask, float], Tensor]
"""(terms, values B kv_heads S I, mask, dropout of weights) -> B k T I"""


def repeat_kv(heads: int, shared: Float[Tensor, "B kv_heads S U"]) -> Float[Tensor, "B k S U"]:
    """Repeat keys or values for the heads that share them."""
    batch, kv_heads, time, width = shared.shape
    if kv_heads == heads:
        return shared
    wide = shared[:, :, None].expand(batch, kv_heads, heads // kv_heads, time, width)
    return wide.reshape(batch, heads, time, width)


def attention_weights(terms: ScoreTerms, mask: Mask) -> Float[Tensor, "B k T S"]:
    """Return the attention weights; those of a query sum to one, or to zero if it sees no key."""
    scores = terms.bias
    if terms.queries is not None and terms.keys is not None:
        # Queries have fewer elements than scores, so they are scaled first.
        queries, keys = terms.queries * terms.scale, terms.keys
        product = queries @ repeat_kv(queries.shape[1], keys).mT
        scores = product if scores is None else product + scores
    assert scores is not None, "a score gives queries and keys, a bias, or both"
    if mask.visible is None and not mask.causal:
        return scores.softmax(dim=-1)
    visible = dense_mask(mask, scores.shape[-2], scores.shape[-1], scores.device)
    scores = scores.masked_fill(~visible, float("-inf"))
    no_key = ~visible.any(dim=-1, keepdim=True)  # where softmax would give NaN
    # Such rows are made finite before the softmax, since NaN times zero is NaN in the gradient.
    return scores.masked_fill(no_key, 0.0).softmax(dim=-1).masked_fill(no_key, 0.0)


def eager_attention(
    terms: ScoreTerms, values: Float[Tensor, "B kv_heads S I"], mask: Mask, dropout: float = 0.0
) -> AttentionOutput:
    """Return the weighted means and the weights."""
    weights = attention_weights(terms, mask)
    heads = max(weights.shape[1], values.shape[1])
    # The batch axis of a bias that is equal for the whole batch is 1.
    weights = weights.expand(values.shape[0], heads, -1, -1)
    dropped = F.dropout(weights, dropout) if dropout > 0 else weights
    return AttentionOutput(dropped @ repeat_kv(heads, values), weights)


def fused_attention(
    terms: ScoreTerms, values: Float[Tensor, "B kv_heads S I"], mask: Mask, dropout: float = 0.0
) -> Float[Tensor, "B k T I"]:
    """Return the weighted means, with memory linear in time where possible."""
    queries, keys, bias = terms.queries, terms.keys, terms.bias
    learned_bias = bias is not None and bias.requires_grad
    if queries is None or keys is None or dropout > 0 or learned_bias:
        # There is no product to fuse, or the fused kernel would be slower: with dropout, and with a
        # bias that needs a gradient, for which it computes all weights.
        return eager_attention(terms, values, mask, dropout).output
    kv_heads, head_width = max(keys.shape[1], values.shape[1]), values.shape[-1]
    keys, values = repeat_kv(kv_heads, keys), repeat_kv(kv_heads, values)
    missing = queries.shape[-1] - head_width
    if missing > 0:  # the fused kernel requires one width, and zeros change no product
        values = F.pad(values, (0, missing))
    elif missing < 0:
        queries, keys = F.pad(queries, (0, -missing)), F.pad(keys, (0, -missing))
    grouped = kv_heads != queries.shape[1]  # the fused kernel repeats keys
    visible = allowed = None
    is_causal = mask.causal and mask.visible is None and bias is None
    is_causal = is_causal and queries.shape[2] == keys.shape[2]
    if not is_causal:
        if mask.visible is not None or mask.causal:
            visible = allowed = dense_mask(mask, queries.shape[2], keys.shape[2], queries.device)
        if bias is not None:
            allowed = bias if visible is None else bias.masked_fill(~visible, float("-inf"))
        if allowed is not None and allowed.shape[-2] != queries.shape[2]:
            allowed = allowed.expand(-1, -1, queries.shape[2], -1)
    mixed = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=allowed,
        is_causal=is_causal,
        scale=terms.scale,
        enable_gqa=grouped,
    )[..., :head_width]
    if visible is None:
        return mixed
    return mixed.masked_fill(~visible.any(dim=-1, keepdim=True), 0.0)
