"""Statistics of recorded attention weights, each a mean over queries.

    offset     sum over t of a_it (i - t)         positive attends back
    distance   sum over t of a_it |i - t|
    entropy    -sum over t of a_it ln a_it        in nats; evenness: relative to uniform weights
    at(d)      a_{i,i-d}, over the queries that have a token there:
               previous token at(1), itself at(0), next token at(-1)
    first      a_i0, over all queries but the first
    induction  the sum of a_{i,j+1} over j + 1 < i with token j = token i, where such j exist

Queries at padding and queries that see no key do not count. Keys with a weight of exactly 0 count
as masked.
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
        """Return the mean, NaN if nothing was counted."""
        return self.total / self.count if self.count else torch.full_like(self.total, torch.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadStatistics:
    """Statistics of the heads of one attention; `at` is over offsets from -reach to reach."""

    offset: RunningMean
    distance: RunningMean
    entropy: RunningMean
    evenness: RunningMean
    first: RunningMean
    at: Float[Tensor, "k offsets"]  # sums
    at_count: Int[Tensor, "offsets"]

    def __add__(self, other: "HeadStatistics") -> "HeadStatistics":
        names = (field.name for field in fields(self))
        return HeadStatistics(
            **{name: getattr(self, name) + getattr(other, name) for name in names}
        )

    @property
    def reach(self) -> int:
        return len(self.at_count) // 2

    def histogram(self) -> Float[Tensor, "k offsets"]:
        """Return the mean weight at each offset over the queries that have a token there."""
        return self.at / self.at_count.clamp(min=1)

    def mean_weight_at(self, offset: int) -> Float[Tensor, "k"]:
        """Return the mean weight at one offset: 1 is the previous token, -1 the next."""
        return self.histogram()[:, self.reach + offset]

    def top_offset(self) -> Int[Tensor, "k"]:
        """Return the offset with the largest sum of weights."""
        return self.at.argmax(dim=-1) - self.reach


def head_statistics(
    weights: Float[Tensor, "B k T S"],
    present: Bool[Tensor, "B S"] | None = None,
    *,
    reach: int = 32,
) -> HeadStatistics:
    """Measure a self-attention; if there are fewer queries than keys, they are the last ones."""
    batch, heads, queries, keys = weights.shape
    if present is None:
        present = weights.new_ones(batch, keys, dtype=torch.bool)
    key_positions = present.cumsum(dim=1) - 1
    query_positions = key_positions[:, keys - queries :]
    counted = present[:, keys - queries :] & (weights.sum(dim=(1, 3)) > 0)
    offsets = query_positions[:, :, None] - key_positions[:, None]
    entropy = torch.special.entr(weights).sum(dim=-1)
    uniform = (weights > 0).sum(dim=-1).to(weights.dtype).log()
    first = (weights * (present & (key_positions == 0))[:, None, None]).sum(dim=-1)
    in_reach = counted[:, :, None] & present[:, None] & (offsets.abs() <= reach)
    bins = offsets[in_reach] + reach
    at = weights.new_zeros(heads, 2 * reach + 1)
    return HeadStatistics(
        offset=_running_mean((weights * offsets[:, None]).sum(dim=-1), counted),
        distance=_running_mean((weights * offsets[:, None].abs()).sum(dim=-1), counted),
        entropy=_running_mean(entropy, counted),
        evenness=_running_mean(
            entropy / uniform.clamp(min=torch.finfo(uniform.dtype).tiny),
            counted & (uniform > 0).any(dim=1),
        ),
        first=_running_mean(first, counted & (query_positions > 0)),
        at=at.index_add(1, bins, weights.transpose(0, 1)[:, in_reach]),
        at_count=torch.bincount(bins, minlength=2 * reach + 1),
    )


def entropies(weights: Float[Tensor, "B k T S"]) -> RunningMean:
    """Measure the entropy alone: offsets have no meaning in cross-attention."""
    entropy = torch.special.entr(weights).sum(dim=-1)
    return _running_mean(entropy, weights.sum(dim=(1, 3)) > 0)


def induction(weights: Float[Tensor, "B k T T"], tokens: Int[Tensor, "B T"]) -> RunningMean:
    """Measure attention to the tokens after earlier copies of the query's token."""
    same = tokens[:, :, None] == tokens[:, None]
    # The key follows the copy and precedes the query.
    after_copy = same.roll(1, dims=2).tril(diagonal=-1)
    after_copy[:, :, 0] = False
    return _running_mean((weights * after_copy[:, None]).sum(dim=-1), after_copy.any(dim=-1))


def repeated_tokens(
    vocabulary: int, *, rows: int, period: int, seed: int
) -> Int[Tensor, "rows time"]:
    """Return random tokens repeated once: only induction predicts the second half."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (rows, period), generator=generator).repeat(1, 2)


def _running_mean(values: Float[Tensor, "B k T"], counted: Bool[Tensor, "B T"]) -> RunningMean:
    total = torch.where(counted[:, None], values, 0.0).sum(dim=(0, 2))
    return RunningMean(total, int(counted.sum()))
