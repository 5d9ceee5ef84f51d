"""Mix values by attention: c_i = sum over t of a_it v_t, a = softmax over t of the scores.

Two kernels take the same arguments. `eager_attention` reads like the formula and returns the
weights; `fused_attention` never forms them where PyTorch's fused kernel can do without. A score
that is no product of queries and keys comes as `bias` alone. A query that sees no key yields zeros.

Keys and values may have fewer heads than queries; each then serves several.
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
        # Scaled before the product, where there are fewer numbers to scale.
        queries, keys = terms.queries * terms.scale, terms.keys
        product = queries @ repeat_kv(queries.shape[1], keys).mT
        scores = product if scores is None else product + scores
    assert scores is not None, "a score gives queries and keys, a bias, or both"
    if mask.visible is None and not mask.causal:
        return scores.softmax(dim=-1)
    visible = dense_mask(mask, scores.shape[-2], scores.shape[-1], scores.device)
    scores = scores.masked_fill(~visible, float("-inf"))
    blind = ~visible.any(dim=-1, keepdim=True)  # where softmax would give NaN
    # The blind row is made finite first: NaN times zero is NaN in the gradient too.
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def eager_attention(
    terms: ScoreTerms, values: Float[Tensor, "B kv_heads S I"], mask: Mask, dropout: float = 0.0
) -> AttentionOutput:
    """Compute the formula step by step, and return its weights as well."""
    weights = attention_weights(terms, mask)
    heads = max(weights.shape[1], values.shape[1])
    # A bias that is equal for all of the batch has weights with a batch axis of one.
    weights = weights.expand(values.shape[0], heads, -1, -1)
    kept = F.dropout(weights, dropout) if dropout > 0 else weights
    return AttentionOutput(kept @ repeat_kv(heads, values), weights)


def fused_attention(
    terms: ScoreTerms, values: Float[Tensor, "B kv_heads S I"], mask: Mask, dropout: float = 0.0
) -> Float[Tensor, "B k T I"]:
    """Compute the same through the fused kernel, with memory linear in time where possible."""
    queries, keys, bias = terms.queries, terms.keys, terms.bias
    if queries is None or keys is None or dropout > 0 or _learns(bias):
        # No product to fuse; dropout inside the fused kernel is slower than without fusing; and a
        # bias that wants a gradient makes it form all weights too, by a longer way.
        return eager_attention(terms, values, mask, dropout).output
    kv_heads, head_width = max(keys.shape[1], values.shape[1]), values.shape[-1]
    keys, values = repeat_kv(kv_heads, keys), repeat_kv(kv_heads, values)
    queries, keys, values = _same_width(queries, keys, values)
    grouped = kv_heads != queries.shape[1]  # the fused kernel repeats keys itself
    whole = queries.shape[2] == keys.shape[2]
    if mask.causal and mask.visible is None and bias is None and whole:
        mixed = F.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, scale=terms.scale, enable_gqa=grouped
        )
        return mixed[..., :head_width]
    visible = None
    if mask.visible is not None or mask.causal:
        visible = dense_mask(mask, queries.shape[2], keys.shape[2], queries.device)
    allowed = visible
    if bias is not None:
        allowed = bias if visible is None else bias.masked_fill(~visible, float("-inf"))
    if allowed is not None and allowed.shape[-2] != queries.shape[2]:
        allowed = allowed.expand(-1, -1, queries.shape[2], -1)
    mixed = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=allowed, scale=terms.scale, enable_gqa=grouped
    )[..., :head_width]
    if visible is None:
        return mixed
    return mixed.masked_fill(~visible.any(dim=-1, keepdim=True), 0.0)


def _learns(bias: Tensor | None) -> bool:
    return bias is not None and bias.requires_grad


def _same_width(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pad with zeros to one width: the fused kernel knows only one, and zeros change no product."""
    short = queries.shape[-1] - values.shape[-1]
    if short > 0:
        return queries, keys, F.pad(values, (0, short))
    if short < 0:
        return F.pad(queries, (0, -short)), F.pad(keys, (0, -short)), values
    return queries, keys, values
