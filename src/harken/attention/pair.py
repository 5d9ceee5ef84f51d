"""Queries and keys that are linear images of their tokens: what most scores begin with."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.attend import Compared
from harken.attention.low_rank import LowRank, split_projection


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreSizes:
    """What a layer tells its score; `memory_width` differs from `width` in cross-attention."""

    width: int  # J of queries
    memory_width: int  # J of keys
    heads: int  # k
    groups: int  # heads of keys
    key_width: int  # U
    length: int  # the longest input, for scores that have a place for each position
    bias: bool = False  # of the two projections
    cross: bool = False  # keys are of another sequence: there is no distance from query to key


def split_heads(flat: Float[Tensor, "B T joined"], heads: int) -> Float[Tensor, "B k T U"]:
    """Lay the heads side by side on an axis of their own, without moving memory."""
    batch, time, _ = flat.shape
    return flat.view(batch, time, heads, -1).transpose(1, 2)


class Pair(nn.Module):
    """W_Q and W_K: queries and keys that are linear images of their tokens.

    What `compare` makes of them is unknown here, so a subclass has no low-rank factors unless it
    overrides `factors`, with `linear_factors` where the score is scale * q . k.
    """

    no_factors = "it does not state a product of query and key"

    def __init__(self, sizes: ScoreSizes) -> None:
        super().__init__()
        self.heads, self.groups = sizes.heads, sizes.groups
        self.to_queries = nn.Linear(sizes.width, sizes.heads * sizes.key_width, bias=sizes.bias)
        self.to_keys = nn.Linear(
            sizes.memory_width, sizes.groups * sizes.key_width, bias=sizes.bias
        )

    def queries(self, inputs: Float[Tensor, "B T J"]) -> Float[Tensor, "B k T U"]:
        return split_heads(self.to_queries(inputs), self.heads)

    def keys(self, inputs: Float[Tensor, "B S J"]) -> Float[Tensor, "B groups S U"]:
        return split_heads(self.to_keys(inputs), self.groups)

    def factors(self) -> LowRank | None:
        return None

    def linear_factors(self, scale: float) -> LowRank:
        """Return scale * (W_Q x + b_Q) . (W_K y + b_K) of every head."""
        left, left_offset = split_projection(self.to_queries, self.heads, self.heads)
        right, right_offset = split_projection(self.to_keys, self.groups, self.heads)
        return LowRank(left * scale, right, left_offset * scale, right_offset)


class Product(Pair):
    """q . k, scaled or not."""

    no_factors = ""

    def __init__(self, sizes: ScoreSizes, scale: float) -> None:
        super().__init__(sizes)
        self.scale = scale

    def compare(
        self,
        inputs: Float[Tensor, "B T J"],
        queries: Float[Tensor, "B k T U"] | None,
        keys: Float[Tensor, "B groups S U"] | None,
        query_positions: Int[Tensor, "#B T"],
        key_positions: Int[Tensor, "#B S"],
    ) -> Compared:
        return Compared(queries=queries, keys=keys, scale=self.scale)

    def factors(self) -> LowRank:
        return self.linear_factors(self.scale)
