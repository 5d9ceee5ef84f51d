"""Merge W_Q and W_K into one matrix, and split it again.

    W~ = scale * W_Q^T W_K        x_i . W~ x_t  =  scale * (W_Q x_i) . (W_K x_t)

W_Q and W_K have 2 U J weights per head, W~ has J^2. Merging is exact. Splitting keeps the U largest
singular values of W~. The error of a score is at most the largest singular value that is left out,
times the norms of the two tokens.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head, WeightPatch
from harken.attention.query_key import DotProductScore, Score


@dataclass(frozen=True, slots=True)
class QueryKeyMatrices:
    """W_Q and W_K of every head, such that W~ = W_Q^T W_K (the scale is included)."""

    queries: Float[Tensor, "k U J"]
    keys: Float[Tensor, "k U memory_width"]
    truncation: Float[Tensor, "k"]  # largest singular value that is left out


def merge_pair(
    queries: Float[Tensor, "k U J"], keys: Float[Tensor, "k U memory_width"], scale: float
) -> Float[Tensor, "k J memory_width"]:
    """Return W~ of each head."""
    return einsum(queries, keys, "k U J, k U memory_width -> k J memory_width") * scale


def split_merged(merged: Float[Tensor, "k J memory_width"], key_width: int) -> QueryKeyMatrices:
    """Return the W_Q and W_K of this key width whose product is closest to W~ (least squares)."""
    left, sigma, right = torch.linalg.svd(merged, full_matrices=False)
    root = sigma[:, :key_width].sqrt()[:, :, None]
    truncation = sigma[:, key_width] if key_width < sigma.shape[1] else sigma.new_zeros(len(sigma))
    padding = (0, 0, 0, max(0, key_width - sigma.shape[1]))  # zeros beyond the rank
    return QueryKeyMatrices(
        queries=F.pad(left.mT[:, :key_width] * root, padding),
        keys=F.pad(right[:, :key_width] * root, padding),
        truncation=truncation,
    )


def truncation_patches(score: Score, rank: int) -> list[WeightPatch]:
    """Return patches that truncate W~ of each head to this rank, for dot products without bias."""
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
        for patch in score.head_patches(Head(queries=head_queries, keys=head_keys), index)
    ]
