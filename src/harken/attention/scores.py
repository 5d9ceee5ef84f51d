"""Scores of queries and keys.

    dot          q_i . k_t                                with q = W_Q x, k = W_K x
    scaled       q_i . k_t / sqrt(U)
    additive     v . tanh(q_i + k_t)
    merged       x_i . W~ x_t                             one matrix in place of W_Q and W_K
    synthesizer  dense: row i is W_2 relu(W_1 x_i), from the token alone;
                 random: row i is learned and the same for every input
    transformer_xl  ((q_i + u) . k_t + (q_i + v) . r_{i-t}) / sqrt(U), in `transformer_xl.py`;
                 `scaled` in cross-attention, where there is no distance i-t

To add a score, write a subclass of `Score`, a config with `build`, and add it to `ScoreConfig`; a
subclass of `QueryKeyScore` needs only `terms`. `merging.py` converts two projections to one matrix.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.head import Head, Patch
from harken.attention.kernels import ScoreTerms, repeat_kv
from harken.attention.low_rank import LowRank
from harken.attention.query_key import DotProductScore as DotProductScore
from harken.attention.query_key import (
    KeyPositions,
    Keys,
    Queries,
    QueryKeyScore,
    QueryPositions,
    ScoreSizes,
    ScoreTraits,
    Tokens,
)
from harken.attention.query_key import Score as Score
from harken.attention.transformer_xl import TransformerXLConfig
from harken.config import bounded
from harken.errors import UserError

INITIAL_STD = 0.02


class AdditiveScore(QueryKeyScore):
    """v . tanh(q + k): no product, so it reaches the kernel as a bias."""

    not_a_product = "it adds query and key inside a tanh"

    def __init__(self, sizes: ScoreSizes) -> None:
        super().__init__(sizes)
        self.direction = nn.Parameter(torch.zeros(sizes.heads, sizes.key_width))
        nn.init.normal_(self.direction, std=sizes.key_width**-0.5)

    def reset_parameters(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.direction, std=self.direction.shape[-1] ** -0.5, generator=generator)

    def terms(
        self,
        inputs: Tokens,
        queries: Queries,
        keys: Keys,
        query_positions: QueryPositions,
        key_positions: KeyPositions,
    ) -> ScoreTerms:
        assert queries is not None and keys is not None
        joined = torch.tanh(queries[:, :, :, None] + repeat_kv(self.heads, keys)[:, :, None])
        return ScoreTerms(bias=einsum(joined, self.direction, "B k T S U, k U -> B k T S"))


class MergedScore(Score):
    """x_i . W~ x_t: the query is mapped to the space of tokens, and a token is its own key.

    W~ = scale * weight. A sum of J^2 products is of size one only if each is small. The learned
    parameter is not small: Adam's steps have one size for all parameters, and would be many times
    as large as W~.
    """

    not_a_product = ""

    def __init__(self, sizes: ScoreSizes) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(sizes.heads, sizes.width, sizes.memory_width))
        self.scale: float = (sizes.width * sizes.memory_width) ** -0.5
        nn.init.normal_(self.weight)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Give W~ the standard deviation of a product of two matrices."""
        nn.init.normal_(self.weight, std=INITIAL_STD**2 / self.scale, generator=generator)

    @property
    def matrix(self) -> Float[Tensor, "k J memory"]:
        """W~ itself."""
        return self.scale * self.weight

    def queries(self, inputs: Tokens) -> Queries:
        return einsum(inputs * self.scale, self.weight, "B T J, k J U -> B k T U")

    def keys(self, inputs: Tokens) -> Keys:
        return inputs[:, None]

    def terms(
        self,
        inputs: Tokens,
        queries: Queries,
        keys: Keys,
        query_positions: QueryPositions,
        key_positions: KeyPositions,
    ) -> ScoreTerms:
        return ScoreTerms(queries=queries, keys=keys)

    def factors(self) -> LowRank:
        heads, _, memory_width = self.weight.shape
        identity = torch.eye(memory_width, dtype=self.weight.dtype, device=self.weight.device)
        zeros = self.weight.new_zeros(heads, memory_width)
        return LowRank(self.matrix.mT, identity.expand(heads, -1, -1), zeros, zeros)

    def install(self, head: Head, index: int) -> list[Patch]:
        head.check_width(self.weight.shape[1])
        if head.query_offset is not None or head.key_offset is not None:
            raise UserError(
                "install: the head has offsets, and score 'merged' has none",
                fix="use score 'scaled' with attention.bias = true, or fold them in (`steady`)",
            )
        return [Patch(self.weight, (index,), head.queries.T @ head.keys / self.scale)]


class SynthesizerScore(Score):
    """No queries, no keys: a row of scores over key positions, from the token or learned."""

    not_a_product = "it compares no query with any key"

    def __init__(self, sizes: ScoreSizes, hidden: int | None) -> None:
        super().__init__()
        self.from_token: nn.Module | None = None
        heads, length = sizes.heads, sizes.length
        if hidden is None:
            self.table = nn.Parameter(torch.zeros(heads, length, length))
        else:
            self.from_token = nn.Sequential(
                nn.Linear(sizes.width, heads * hidden),
                nn.ReLU(),
                nn.Unflatten(-1, (heads, hidden)),
            )
            self.to_scores = nn.Parameter(torch.zeros(heads, hidden, length))
            self.score_offsets = nn.Parameter(torch.zeros(heads, 1, length))

    def reset_parameters(self, generator: torch.Generator) -> None:
        drawn = self.to_scores if self.table is None else self.table
        nn.init.normal_(drawn, std=INITIAL_STD, generator=generator)

    def terms(
        self,
        inputs: Tokens,
        queries: Queries,
        keys: Keys,
        query_positions: QueryPositions,
        key_positions: KeyPositions,
    ) -> ScoreTerms:
        if self.from_token is None:
            assert self.table is not None
            # Rows first, keys after: indexing both at once would move the heads last.
            rows = self.table[:, query_positions].transpose(0, 1)
        else:
            hidden = self.from_token(inputs).transpose(1, 2)
            rows = hidden @ self.to_scores + self.score_offsets
        return ScoreTerms(bias=at_positions(rows, key_positions))


def at_positions(
    rows: Float[Tensor, "#B k T places"], key_positions: Int[Tensor, "#B S"]
) -> Float[Tensor, "#B k T S"]:
    """Select each key's score by its position, which in a packed row is not its index."""
    if key_positions.shape[0] == 1:
        return rows[..., key_positions[0]]
    batch, heads, queries = key_positions.shape[0], rows.shape[1], rows.shape[2]
    index = key_positions[:, None, None, :].expand(batch, heads, queries, -1)
    return rows.expand(batch, -1, -1, -1).gather(-1, index)


@dataclass(frozen=True, kw_only=True, slots=True)
class DotConfig(ScoreTraits):
    """q . k, unscaled."""

    kind: Literal["dot"] = "dot"

    def build(self, sizes: ScoreSizes) -> DotProductScore:
        return DotProductScore(sizes, scale=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledConfig(ScoreTraits):
    """q . k / sqrt(U)."""

    kind: Literal["scaled"] = "scaled"

    def build(self, sizes: ScoreSizes) -> DotProductScore:
        return DotProductScore(sizes, scale=sizes.key_width**-0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdditiveConfig(ScoreTraits):
    """v . tanh(q + k), as in the first attention for translation; quadratic in memory."""

    kind: Literal["additive"] = "additive"
    conflicts: ClassVar[Mapping[str, str]] = {
        "rotary": "position 'rotary' makes products depend on distance, "
        "and score 'additive' adds queries and keys"
    }

    def build(self, sizes: ScoreSizes) -> AdditiveScore:
        return AdditiveScore(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedConfig(ScoreTraits):
    """x . W~ x, with the scale inside W~; J^2 weights per head instead of 2 U J."""

    kind: Literal["merged"] = "merged"
    whole_tokens: ClassVar[bool] = True

    def build(self, sizes: ScoreSizes) -> MergedScore:
        return MergedScore(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class SynthesizerConfig(ScoreTraits):
    """Scores without a query-key product; `hidden` is a head's width between the dense layers."""

    kind: Literal["synthesizer"] = "synthesizer"
    conflicts: ClassVar[Mapping[str, str]] = {
        "rotary": "position 'rotary' turns queries and keys, and score 'synthesizer' has none"
    }
    per_position: ClassVar[bool] = True
    form: Literal["dense", "random"] = "dense"
    hidden: int | None = bounded(None, at_least=1)  # the key width where not given

    def build(self, sizes: ScoreSizes) -> SynthesizerScore:
        hidden = (self.hidden or sizes.key_width) if self.form == "dense" else None
        return SynthesizerScore(sizes, hidden)


ScoreConfig = (
    DotConfig
    | ScaledConfig
    | AdditiveConfig
    | MergedConfig
    | SynthesizerConfig
    | TransformerXLConfig
)
