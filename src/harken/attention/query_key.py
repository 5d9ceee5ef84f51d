"""The base class of scores, and scores made of a query and a key projection."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.head import Head, LowRank, WeightPatch, projection_patches, split_projection
from harken.attention.kernels import ScoreTerms
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreSizes:
    """Sizes that a layer passes to its score."""

    width: int  # J of the tokens that queries are computed from
    memory_width: int  # J of the tokens that keys are computed from
    heads: int  # k
    kv_heads: int  # heads of keys
    key_width: int  # U
    max_length: int  # for scores with parameters per position
    bias: bool = False  # whether the query and key projections have a bias
    key_bias: bool = True  # whether also the key projection has it
    cross: bool = False  # cross-attention, where queries and keys have no distance


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreTraits:
    """Base class of score configs. Its class variables tell which models a score fits."""

    conflicts: ClassVar[Mapping[str, str]] = {}  # kind of position -> why it is incompatible
    keys_are_tokens: ClassVar[bool] = False  # keys are not projected and have no key_width
    per_position: ClassVar[bool] = False  # has parameters for each position up to `max_length`
    uses_distances: ClassVar[bool] = False  # depends on distances along one axis


Tokens = Float[Tensor, "B T J"]
Queries = Float[Tensor, "B k T U"]
Keys = Float[Tensor, "B kv_heads S U"]


class ScoreInputs(NamedTuple):
    """Arguments of `Score.terms`; `queries` and `keys` are None for scores without them."""

    tokens: Tokens  # from which the queries are computed
    queries: Queries | None
    keys: Keys | None
    query_positions: Int[Tensor, "#B T"]
    key_positions: Int[Tensor, "#B S"]


def split_heads(flat: Float[Tensor, "B T joined"], heads: int) -> Float[Tensor, "B k T U"]:
    """Return a view with the heads on a separate axis."""
    batch, time, _ = flat.shape
    return flat.view(batch, time, heads, -1).transpose(1, 2)


class Score(nn.Module):
    """Base of the scores. Queries and keys are computed separately, so that keys can be cached."""

    # Why the score is not bilinear in the two tokens, for errors; "" if it is.
    not_bilinear = "it does not declare a product of query and key"
    key_width: int | None = None  # U of each head; None without query and key projections

    def __init__(self) -> None:
        super().__init__()
        # Scores of all pairs of positions (k T S), if they do not depend on the tokens.
        self.table: nn.Parameter | None = None

    def queries(self, inputs: Tokens) -> Queries | None:
        return None

    def keys(self, inputs: Tokens) -> Keys | None:
        return None

    def terms(self, inputs: ScoreInputs) -> ScoreTerms:
        """Return the terms of the scores of all queries and keys."""
        raise NotImplementedError

    def factors(self) -> LowRank | None:
        """Return the bilinear form of the score, or of its content term; None if it has none."""
        return None

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Initialize the parameters of the score itself, not those of submodules."""

    def head_patches(self, head: Head, index: int) -> list[WeightPatch]:
        """Return patches that write `head` at this index, or raise an error with the reason."""
        raise UserError(
            f"install: a designed head does not fit this score: {self.not_bilinear}",
            fix="use score 'dot', 'scaled' or 'merged' (or a random synthesizer for a shift)",
        )


class QueryKeyScore(Score):
    """Base of the scores with W_Q and W_K: queries and keys are projections of tokens.

    A subclass defines `terms`. If its score is scale * q . k, `factors` returns `linear_factors`.
    """

    key_width: int

    def __init__(self, sizes: ScoreSizes) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.key_width = sizes.heads, sizes.kv_heads, sizes.key_width
        self.q_proj = nn.Linear(sizes.width, sizes.heads * sizes.key_width, bias=sizes.bias)
        self.k_proj = nn.Linear(
            sizes.memory_width,
            sizes.kv_heads * sizes.key_width,
            bias=sizes.bias and sizes.key_bias,
        )

    def queries(self, inputs: Tokens) -> Queries:
        return split_heads(self.q_proj(inputs), self.heads)

    def keys(self, inputs: Tokens) -> Keys:
        return split_heads(self.k_proj(inputs), self.kv_heads)

    def linear_factors(self, scale: float) -> LowRank:
        """Return the factors of the score scale * (W_Q x + b_Q) . (W_K y + b_K) of every head."""
        left, left_offset = split_projection(self.q_proj, kv_heads=self.heads, heads=self.heads)
        right, right_offset = split_projection(
            self.k_proj, kv_heads=self.kv_heads, heads=self.heads
        )
        return LowRank(left * scale, right, left_offset * scale, right_offset)


class DotProductScore(QueryKeyScore):
    """q . k, scaled or not."""

    not_bilinear = ""

    def __init__(self, sizes: ScoreSizes, scale: float) -> None:
        super().__init__(sizes)
        self.scale = scale

    def terms(self, inputs: ScoreInputs) -> ScoreTerms:
        return ScoreTerms(queries=inputs.queries, keys=inputs.keys, scale=self.scale)

    def factors(self) -> LowRank:
        return self.linear_factors(self.scale)

    def head_patches(self, head: Head, index: int) -> list[WeightPatch]:
        if self.kv_heads != self.heads:
            raise UserError(
                f"install: expected {self.heads} kv_heads, one per head, got {self.kv_heads}",
                fix="leave out attention.kv_heads",
            )
        head.check_width(self.q_proj.in_features)
        if head.key_width > self.key_width:
            raise UserError(
                f"install: the head has key width {head.key_width} "
                f"(expected at most {self.key_width}, that of the layer)",
                fix="design a head with at most that key width",
            )
        offset = None if head.query_offset is None else head.query_offset / self.scale
        return [
            *projection_patches(self.q_proj, self.heads, index, head.queries / self.scale, offset),
            *projection_patches(self.k_proj, self.heads, index, head.keys, head.key_offset),
        ]
