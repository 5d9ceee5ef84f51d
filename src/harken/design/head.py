"""Attention and output of a designed head.

    score(i, t) = (W_Q x_i + b_Q) . (W_K x_t + b_K)      output: W_O W_V x_t

With a `rotation`, queries and keys are rotated by their positions, as in a layer with rotary
positions. A head without values only determines attention.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head as Head
from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import MaskKind, build_mask
from harken.attention.relative import Rotation, rotate


def attention(
    head: Head,
    tokens: Float[Tensor, "T J"],
    order: MaskKind = "causal",
    rotation: Rotation | None = None,
) -> Float[Tensor, "T S"]:
    """Attention weights; zeros for a token that sees no key."""
    queries, keys = tokens @ head.queries.T, tokens @ head.keys.T
    queries = queries if head.query_offset is None else queries + head.query_offset
    keys = keys if head.key_offset is None else keys + head.key_offset
    queries, keys = queries[None, None], keys[None, None]
    if rotation is not None:
        queries, keys = rotate(queries, rotation), rotate(keys, rotation)
    positions = torch.arange(len(tokens))[None]
    terms = ScoreTerms(queries=queries, keys=keys)
    return attention_weights(terms, build_mask(order, positions, positions))[0, 0]


def apply_heads(
    heads: Sequence[Head], tokens: Float[Tensor, "T J"], order: MaskKind = "causal"
) -> Float[Tensor, "T J"]:
    """Tokens after residual layers of one head each, without norms."""
    for head in heads:
        assert head.values is not None and head.output is not None, "the head has no values"
        context = attention(head, tokens, order) @ (tokens @ head.values.T)
        tokens = tokens + context @ head.output.T
    return tokens
