"""Merge W_Q and W_K into one matrix, and split it again.

    W~ = scale * W_Q^T W_K        x_i . W~ x_t  =  scale * (W_Q x_i) . (W_K x_t)

A head has 2 U J weights, merged J^2: equal at U = J / 2. Merging is exact. Splitting keeps the U
largest singular directions of W~. The error of a score is at most the largest singular value left
out, times the norms of the two tokens.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head, Patch
from harken.attention.query_key import DotProductScore, Score


@dataclass(frozen=True, slots=True)
class SplitPair:
    """W_Q and W_K of every head (scale 1), and the largest singular value left out of each."""

    queries: Float[Tensor, "k U J"]
    keys: Float[Tensor, "k U memory"]
    truncation: Float[Tensor, "k"]


def merge_pair(
    queries: Float[Tensor, "k U J"], keys: Float[Tensor, "k U memory"], scale: float
) -> Float[Tensor, "k J memory"]:
    """Return the matrix of each head that gives the same scores."""
    return einsum(queries, keys, "k U J, k U memory -> k J memory") * scale


def split_merged(merged: Float[Tensor, "k J memory"], key_width: int) -> SplitPair:
    """Return the best W_Q and W_K of this key width in the least-squares sense."""
    left, values, right = torch.linalg.svd(merged, full_matrices=False)
    root = values[:, :key_width].sqrt()[:, :, None]
    left_out = (
        values[:, key_width] if key_width < values.shape[1] else values.new_zeros(len(values))
    )
    spare = (0, 0, 0, max(0, key_width - values.shape[1]))  # zeros beyond the rank
    return SplitPair(
        queries=F.pad(left.mT[:, :key_width] * root, spare),
        keys=F.pad(right[:, :key_width] * root, spare),
        truncation=left_out,
    )


def truncate(score: Score, rank: int) -> list[Patch]:
    """Return the patches that keep the `rank` largest directions of W~ in every head of q . k."""
    assert isinstance(score, DotProductScore), "W~ is a product of two matrices"
    queries, keys = (
        linear.weight.view(score.heads, -1, linear.in_features)
        for linear in (score.q_proj, score.k_proj)
    )
    pair = split_merged(merge_pair(queries, keys, score.scale), min(rank, queries.shape[1]))
    heads = zip(pair.queries, pair.keys, strict=True)
    return [
        patch
        for index, (head_queries, head_keys) in enumerate(heads)
        for patch in score.install(Head(queries=head_queries, keys=head_keys), index)
    ]
