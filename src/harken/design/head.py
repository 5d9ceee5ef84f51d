"""Attention and output of designed heads, and the subspaces of a token that they read and write.

A designed head is exact if the subspaces are disjoint. Otherwise content is noise to a head that
reads positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head as Head
from harken.attention.kernels import ScoreTerms, attention_weights
from harken.attention.masks import MaskKind, build_mask


def head_attention(
    head: Head, tokens: Float[Tensor, "T J"], mask_kind: MaskKind = "causal"
) -> Float[Tensor, "T S"]:
    """Return the attention weights of a head; a query that sees no key has zeros."""
    queries, keys = tokens @ head.queries.T, tokens @ head.keys.T
    queries = queries if head.query_offset is None else queries + head.query_offset
    keys = keys if head.key_offset is None else keys + head.key_offset
    positions = torch.arange(len(tokens))[None]
    terms = ScoreTerms(queries=queries[None, None], keys=keys[None, None])
    return attention_weights(terms, build_mask(mask_kind, positions, positions))[0, 0]


def apply_heads(
    heads: Sequence[Head], tokens: Float[Tensor, "T J"], mask_kind: MaskKind = "causal"
) -> Float[Tensor, "T J"]:
    """Apply residual layers of one head each, without norms."""
    for head in heads:
        assert head.values is not None and head.output is not None, "the head has no values"
        context = head_attention(head, tokens, mask_kind) @ (tokens @ head.values.T)
        tokens = tokens + context @ head.output.T
    return tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Subspaces:
    """Index ranges of a token vector: content, position, and `scratch` for outputs of heads."""

    width: int
    content: range
    position: range
    scratch: range = range(0)


def concatenated_subspaces(
    content_width: int, position_width: int, scratch_width: int = 0
) -> Subspaces:
    """Return disjoint subspaces [content | position | scratch], as with `combine = "concat"`."""
    scratch_start = content_width + position_width
    width = scratch_start + scratch_width
    return Subspaces(
        width=width,
        content=range(content_width),
        position=range(content_width, scratch_start),
        scratch=range(scratch_start, width),
    )


def shared_subspaces(width: int) -> Subspaces:
    """Return equal subspaces for content and position, as with `combine = "add"`."""
    return Subspaces(width=width, content=range(width), position=range(width))


def pad_columns(matrix: Float[Tensor, "rows columns"], subspace: range, width: int) -> Tensor:
    """Return a matrix that applies `matrix` to a subspace and ignores all other elements."""
    wide = matrix.new_zeros(matrix.shape[0], width)
    wide[:, subspace.start : subspace.stop] = matrix
    return wide


def projection(subspace: range, width: int) -> Float[Tensor, "I J"]:
    """Return the matrix that reads a subspace of a token; its transpose writes it."""
    return pad_columns(torch.eye(len(subspace), dtype=torch.float64), subspace, width)
