"""Where heads look while a model runs: figures of recorded weights, each a mean over queries.

    offset     sum over t of a_it (i - t)         positive mean_weight_at back
    distance   sum over t of a_it |i - t|
    entropy    -sum over t of a_it ln a_it        in nats; and as a share of that of even attention
    at(d)      a_{i,i-d}, over the queries that have a token there:
               previous at(1), itself at(0), following at(-1)
    first      a_i0, over the queries that are not first themselves
    induction  the sum of a_{i,j+1} over j + 1 < i with token j = token i, where there is one

Sums and counts are kept, so that inputs met one by one add up to one figure. Queries at padding and
queries that see nothing count nowhere. Keys that get exactly nothing count as not visible.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RunningMean:
    """A sum over queries for every head, and how many queries it is over."""

    total: Float[Tensor, "k"]
    count: int

    def __add__(self, other: "RunningMean") -> "RunningMean":
        return RunningMean(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> Float[Tensor, "k"]:
        """Not a number where nothing was counted."""
        return self.total / self.count if self.count else torch.full_like(self.total, torch.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadStatistics:
    """What the heads of one attention did; `at` counts from -reach to reach."""

    offset: RunningMean
    distance: RunningMean
    entropy: RunningMean
    evenness: RunningMean  # entropy over that of even attention to what is visible
    first: RunningMean
    at: Float[Tensor, "k offsets"]  # sums
    at_count: Int[Tensor, "offsets"]

    def __add__(self, other: "HeadStatistics") -> "HeadStatistics":
        return HeadStatistics(
            offset=self.offset + other.offset,
            distance=self.distance + other.distance,
            entropy=self.entropy + other.entropy,
            evenness=self.evenness + other.evenness,
            first=self.first + other.first,
            at=self.at + other.at,
            at_count=self.at_count + other.at_count,
        )

    @property
    def queries(self) -> int:
        return self.entropy.count

    @property
    def reach(self) -> int:
        return len(self.at_count) // 2

    def histogram(self) -> Float[Tensor, "k offsets"]:
        """Mean weight at each offset, over the queries that have a token there; else zero."""
        return self.at / self.at_count.clamp(min=1)

    def mean_weight_at(self, offset: int) -> Float[Tensor, "k"]:
        """Mean weight at one offset: 1 is the previous token, -1 the next."""
        return self.histogram()[:, self.reach + offset]

    def top_offset(self) -> Int[Tensor, "k"]:
        """The offset that gets most weight of all queries together, so that no rare one wins."""
        return self.at.argmax(dim=-1) - self.reach


def added(parts: Iterable[HeadStatistics]) -> HeadStatistics:
    """That of all inputs together."""
    return reduce(HeadStatistics.__add__, parts)


def head_statistics(
    weights: Float[Tensor, "B k T S"],
    present: Bool[Tensor, "B S"] | None = None,
    *,
    reach: int = 32,
) -> HeadStatistics:
    """Of a self-attention; fewer queries than keys are the last ones, as when text is extended."""
    batch, _, time, places = weights.shape
    if present is None:
        present = weights.new_ones(batch, places, dtype=torch.bool)
    keys_at = present.cumsum(dim=1) - 1
    queries_at = keys_at[:, places - time :]
    counted = present[:, places - time :] & (weights.sum(dim=(1, 3)) > 0)
    offsets = queries_at[:, :, None] - keys_at[:, None]
    entropy = torch.special.entr(weights).sum(dim=-1)
    even = (weights > 0).sum(dim=-1).to(weights.dtype).log()
    chooses = counted & (even > 0).any(dim=1)
    is_first = present & (keys_at == 0)
    first = (weights * is_first[:, None, None]).sum(dim=-1)
    there = counted[:, :, None] & present[:, None] & (offsets.abs() <= reach)
    bins = offsets[there] + reach
    at = weights.new_zeros(weights.shape[1], 2 * reach + 1)
    return HeadStatistics(
        offset=_running_mean((weights * offsets[:, None]).sum(dim=-1), counted),
        distance=_running_mean((weights * offsets[:, None].abs()).sum(dim=-1), counted),
        entropy=_running_mean(entropy, counted),
        evenness=_running_mean(entropy / even.clamp(min=torch.finfo(even.dtype).tiny), chooses),
        first=_running_mean(first, counted & (queries_at > 0)),
        at=at.index_add(1, bins, weights.transpose(0, 1)[:, there]),
        at_count=torch.bincount(bins, minlength=2 * reach + 1),
    )


def entropies(weights: Float[Tensor, "B k T S"]) -> RunningMean:
    """Of attention to a memory, where offsets mean nothing."""
    entropy = torch.special.entr(weights).sum(dim=-1)
    return _running_mean(entropy, weights.sum(dim=(1, 3)) > 0)


def induction(weights: Float[Tensor, "B k T T"], tokens: Int[Tensor, "B T"]) -> RunningMean:
    """Attention to what came after earlier copies of the token that asks."""
    same = tokens[:, :, None] == tokens[:, None]
    # The key is one behind the copy, and before the query: after a doubled token it is itself.
    after_copy = same.roll(1, dims=2).tril(diagonal=-1)
    after_copy[:, :, 0] = False
    return _running_mean((weights * after_copy[:, None]).sum(dim=-1), after_copy.any(dim=-1))


def repeated_tokens(
    vocabulary: int, *, rows: int, period: int, seed: int
) -> Int[Tensor, "rows time"]:
    """Random tokens and the same once more: nothing but induction foretells the second half."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (rows, period), generator=generator).repeat(1, 2)


def _running_mean(values: Float[Tensor, "B k T"], counted: Bool[Tensor, "B T"]) -> RunningMean:
    kept = torch.where(counted[:, None], values, 0.0)
    return RunningMean(kept.sum(dim=(0, 2)), int(counted.sum()))
