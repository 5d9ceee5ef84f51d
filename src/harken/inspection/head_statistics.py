"""Statistics of recorded attention weights a_it of query i and key t, each a mean over queries.

    offset     sum over t of a_it (i - t)         positive if the mean key is before the query
    distance   sum over t of a_it |i - t|
    entropy    -sum over t of a_it ln a_it        in nats
    evenness   entropy / ln(number of keys with a_it > 0), which is 1 for uniform weights
    weight(d)  a_{i,i-d}, over the queries that have a token there:
               d = 1 is the previous token, 0 the token itself, -1 the next token
    first      a_i0, over all queries but the first
    induction  the sum of a_{i,j+1} over j + 1 < i with token j = token i, where such j exist

Queries without a visible key are ignored, and by `head_statistics` also queries at padding.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RunningMean:
    """A sum over queries for every head, and the number of queries."""

    total: Float[Tensor, "k"]
    count: int

    def __add__(self, other: "RunningMean") -> "RunningMean":
        return RunningMean(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> Float[Tensor, "k"]:
        """Return the mean; NaN if there are no queries."""
        return self.total / self.count if self.count else torch.full_like(self.total, torch.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadStatistics:
    """Statistics of the heads of one attention layer; offsets are -max_offset to max_offset."""

    offset: RunningMean
    distance: RunningMean
    entropy: RunningMean
    evenness: RunningMean
    first: RunningMean
    weight_sums: Float[Tensor, "k offsets"]
    query_counts: Int[Tensor, "offsets"]  # queries that have a token at each offset

    def __add__(self, other: "HeadStatistics") -> "HeadStatistics":
        names = (field.name for field in fields(self))
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return HeadStatistics(**sums)

    @property
    def max_offset(self) -> int:
        return len(self.query_counts) // 2

    def histogram(self) -> Float[Tensor, "k offsets"]:
        """Return the mean weight at each offset over the queries that have a token there."""
        return self.weight_sums / self.query_counts.clamp(min=1)

    def mean_weight_at(self, offset: int) -> Float[Tensor, "k"]:
        """Return the mean weight at one offset: 1 is the previous token, -1 the next."""
        return self.histogram()[:, self.max_offset + offset]

    def top_offset(self) -> Int[Tensor, "k"]:
        """Return the offset with the largest sum of weights."""
        return self.weight_sums.argmax(dim=-1) - self.max_offset


def head_statistics(
    weights: Float[Tensor, "B k T S"],
    present: Bool[Tensor, "B S"] | None = None,
    *,
    max_offset: int = 32,
) -> HeadStatistics:
    """Return statistics of self-attention weights, whose queries are the last T of the S tokens."""
    batch, heads, queries, keys = weights.shape
    if present is None:
        present = weights.new_ones(batch, keys, dtype=torch.bool)
    key_positions = present.cumsum(dim=1) - 1
    query_positions = key_positions[:, keys - queries :]
    counted = present[:, keys - queries :] & (weights.sum(dim=(1, 3)) > 0)
    offsets = query_positions[:, :, None] - key_positions[:, None]
    entropy = torch.special.entr(weights).sum(dim=-1)
    max_entropy = (weights > 0).sum(dim=-1).to(weights.dtype).log()
    first = (weights * (present & (key_positions == 0))[:, None, None]).sum(dim=-1)
    in_range = counted[:, :, None] & present[:, None] & (offsets.abs() <= max_offset)
    bins = offsets[in_range] + max_offset
    sums = weights.new_zeros(heads, 2 * max_offset + 1)
    return HeadStatistics(
        offset=_running_mean((weights * offsets[:, None]).sum(dim=-1), counted),
        distance=_running_mean((weights * offsets[:, None].abs()).sum(dim=-1), counted),
        entropy=_running_mean(entropy, counted),
        evenness=_running_mean(
            entropy / max_entropy.clamp(min=torch.finfo(weights.dtype).tiny),
            counted & (max_entropy > 0).any(dim=1),
        ),
        first=_running_mean(first, counted & (query_positions > 0)),
        weight_sums=sums.index_add(1, bins, weights.transpose(0, 1)[:, in_range]),
        query_counts=torch.bincount(bins, minlength=2 * max_offset + 1),
    )


def mean_entropy(weights: Float[Tensor, "B k T S"]) -> RunningMean:
    """Return the mean entropy alone, for cross-attention, where offsets are not defined."""
    entropy = torch.special.entr(weights).sum(dim=-1)
    return _running_mean(entropy, weights.sum(dim=(1, 3)) > 0)


def induction_score(weights: Float[Tensor, "B k T T"], tokens: Int[Tensor, "B T"]) -> RunningMean:
    """Return the weight on the tokens that follow earlier copies of the query's token."""
    same = tokens[:, :, None] == tokens[:, None]
    # The key follows the copy and precedes the query.
    after_copy = same.roll(1, dims=2).tril(diagonal=-1)
    after_copy[:, :, 0] = False
    return _running_mean((weights * after_copy[:, None]).sum(dim=-1), after_copy.any(dim=-1))


def repeated_tokens(
    vocabulary: int, *, rows: int, period: int, seed: int
) -> Int[Tensor, "rows time"]:
    """Return random tokens, repeated once: only induction can predict the second half."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (rows, period), generator=generator).repeat(1, 2)


def _running_mean(values: Float[Tensor, "B k T"], counted: Bool[Tensor, "B T"]) -> RunningMean:
    total = torch.where(counted[:, None], values, 0.0).sum(dim=(0, 2))
    return RunningMean(total, int(counted.sum()))
