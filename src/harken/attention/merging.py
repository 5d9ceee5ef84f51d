"""W_Q and W_K into one matrix, and back.

    W~ = scale * W_Q^T W_K        x_i . W~ x_t  =  scale * (W_Q x_i) . (W_K x_t)

A head of the pair has 2 U J weights, merged it has J^2: equal at U = J / 2. Merging is exact.
Going back takes the U largest singular directions of W~; what is left out bounds the error of any
score by the largest singular value left, times the norms of the two tokens.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head, Patch
from harken.attention.query_key import DotProductScore
from harken.attention.scores import Score


@dataclass(frozen=True, slots=True)
class SplitPair:
    """W_Q and W_K of every head (scale 1), and the largest singular value left out of each."""

    queries: Float[Tensor, "k U J"]
    keys: Float[Tensor, "k U memory"]
    truncation: Float[Tensor, "k"]


def merge_pair(
    queries: Float[Tensor, "k U J"], keys: Float[Tensor, "k U memory"], scale: float
) -> Float[Tensor, "k J memory"]:
    """The one matrix a head that gives the same scores."""
    return einsum(queries, keys, "k U J, k U memory -> k J memory") * scale


def split_merged(merged: Float[Tensor, "k J memory"], key_width: int) -> SplitPair:
    """The best pair of this key width in the least-squares sense; exact where the rank allows."""
    left, values, right = torch.linalg.svd(merged, full_matrices=False)
    root = values[:, :key_width].sqrt()[:, :, None]
    left_out = (
        values[:, key_width] if key_width < values.shape[1] else values.new_zeros(len(values))
    )
    spare = (0, 0, 0, max(0, key_width - values.shape[1]))  # beyond the rank a pair has zeros
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
    heads = enumerate(zip(pair.queries, pair.keys, strict=True))
    return [
        patch
        for index, (own_queries, own_keys) in heads
        for patch in score.install(Head(queries=own_queries, keys=own_keys), index)
    ]
