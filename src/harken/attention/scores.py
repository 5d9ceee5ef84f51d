"""Scores of queries and keys.

    dot             q_i . k_t                          with q = W_Q x, k = W_K x
    scaled          q_i . k_t / sqrt(U)
    additive        v . tanh(q_i + k_t)
    merged          x_i . W~ x_t                       one matrix instead of W_Q and W_K
    synthesizer     dense: W_2 relu(W_1 x_i); random: a learned table of (i, t)
    transformer_xl  ((q_i + u) . k_t + (q_i + v) . r_{i-t}) / sqrt(U); `scaled` in cross-attention

u and v are learned per head, and r_d is a projection of the sinusoids of distance d. To add a
score, write a subclass of `Score`, a config with `build`, and add it to `ScoreConfig`; a subclass
of `QueryKeyScore` needs only `terms`. `merging.py` merges W_Q and W_K into W~.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.head import Head, LowRank, WeightPatch
from harken.attention.kernels import ScoreTerms, repeat_kv
from harken.attention.query_key import (
    DotProductScore,
    Keys,
    Queries,
    QueryKeyScore,
    Score,
    ScoreInputs,
    ScoreSizes,
    ScoreTraits,
    Tokens,
)
from harken.attention.sinusoids import angles, interleave
from harken.config import bounded
from harken.errors import UserError

INITIAL_STD = 0.02


class AdditiveScore(QueryKeyScore):
    """v . tanh(q + k), passed to the kernel as a bias because it is not a product."""

    not_bilinear = "it adds query and key inside a tanh"

    def __init__(self, sizes: ScoreSizes) -> None:
        super().__init__(sizes)
        self.direction = nn.Parameter(torch.zeros(sizes.heads, sizes.key_width))
        nn.init.normal_(self.direction, std=sizes.key_width**-0.5)

    def reset_parameters(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.direction, std=self.direction.shape[-1] ** -0.5, generator=generator)

    def terms(self, inputs: ScoreInputs) -> ScoreTerms:
        assert inputs.queries is not None and inputs.keys is not None
        keys = repeat_kv(self.heads, inputs.keys)[:, :, None]
        hidden = torch.tanh(inputs.queries[:, :, :, None] + keys)
        return ScoreTerms(bias=einsum(hidden, self.direction, "B k T S U, k U -> B k T S"))


class MergedScore(Score):
    """x_i . W~ x_t. Queries have the width of the tokens, and the tokens are the keys.

    W~ = scale * weight. W~ must be small, because the score sums J^2 products. `weight` is larger,
    because Adam's steps have the same size for all parameters and would be too large for W~.
    """

    not_bilinear = ""

    def __init__(self, sizes: ScoreSizes) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(sizes.heads, sizes.width, sizes.memory_width))
        self.scale: float = (sizes.width * sizes.memory_width) ** -0.5
        nn.init.normal_(self.weight)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Initialize W~ with std INITIAL_STD², that of a weight of W_Q times a weight of W_K."""
        nn.init.normal_(self.weight, std=INITIAL_STD**2 / self.scale, generator=generator)

    @property
    def matrix(self) -> Float[Tensor, "k J memory"]:
        """W~."""
        return self.scale * self.weight

    def queries(self, inputs: Tokens) -> Queries:
        return einsum(inputs * self.scale, self.weight, "B T J, k J U -> B k T U")

    def keys(self, inputs: Tokens) -> Keys:
        return inputs[:, None]

    def terms(self, inputs: ScoreInputs) -> ScoreTerms:
        return ScoreTerms(queries=inputs.queries, keys=inputs.keys)

    def factors(self) -> LowRank:
        heads, _, memory_width = self.weight.shape
        identity = torch.eye(memory_width, dtype=self.weight.dtype, device=self.weight.device)
        zeros = self.weight.new_zeros(heads, memory_width)
        return LowRank(self.matrix.mT, identity.expand(heads, -1, -1), zeros, zeros)

    def head_patches(self, head: Head, index: int) -> list[WeightPatch]:
        head.check_width(self.weight.shape[1])
        if head.query_offset is not None or head.key_offset is not None:
            raise UserError(
                "install: the head has offsets, but score 'merged' has none",
                fix="use score 'scaled' with attention.bias = true",
            )
        return [WeightPatch(self.weight, (index,), head.queries.T @ head.keys / self.scale)]


class SynthesizerScore(Score):
    """Scores computed from the query's token by an MLP; if `hidden` is None, a learned table."""

    not_bilinear = "it does not compare queries with keys"

    def __init__(self, sizes: ScoreSizes, hidden: int | None) -> None:
        super().__init__()
        self.from_token: nn.Module | None = None
        heads, length = sizes.heads, sizes.max_length
        if hidden is None:
            self.table = nn.Parameter(torch.zeros(heads, length, length))
        else:
            split = nn.Unflatten(-1, (heads, hidden))
            self.from_token = nn.Sequential(
                nn.Linear(sizes.width, heads * hidden), nn.ReLU(), split
            )
            self.to_scores = nn.Parameter(torch.zeros(heads, hidden, length))
            self.score_offsets = nn.Parameter(torch.zeros(heads, 1, length))

    def reset_parameters(self, generator: torch.Generator) -> None:
        weight = self.to_scores if self.table is None else self.table
        nn.init.normal_(weight, std=INITIAL_STD, generator=generator)

    def terms(self, inputs: ScoreInputs) -> ScoreTerms:
        if self.from_token is None:
            assert self.table is not None
            rows = self.table[:, inputs.query_positions].transpose(0, 1)
        else:
            hidden = self.from_token(inputs.tokens).transpose(1, 2)
            rows = hidden @ self.to_scores + self.score_offsets
        return ScoreTerms(bias=select_keys(rows, inputs.key_positions))


def select_keys(
    rows: Float[Tensor, "#B k T length"], key_positions: Int[Tensor, "#B S"]
) -> Float[Tensor, "#B k T S"]:
    """Select the score of each key by its position, which differs from its index in packed rows."""
    if key_positions.shape[0] == 1:
        return rows[..., key_positions[0]]
    rows = rows.expand(key_positions.shape[0], -1, -1, -1)
    return rows.gather(-1, key_positions[:, None, None].expand(-1, *rows.shape[1:3], -1))


@dataclass(frozen=True, kw_only=True, slots=True)
class DotConfig(ScoreTraits):
    """q . k, without a scale."""

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
    """v . tanh(q + k), the attention of Bahdanau et al.; needs memory for B k T S U elements."""

    kind: Literal["additive"] = "additive"
    conflicts: ClassVar[Mapping[str, str]] = {
        "rotary": "position 'rotary' requires a dot product, "
        "but score 'additive' adds queries and keys"
    }

    def build(self, sizes: ScoreSizes) -> AdditiveScore:
        return AdditiveScore(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedConfig(ScoreTraits):
    """Bilinear attention (Luong's "general" score): x_i . W~ x_t, with J^2 weights per head."""

    kind: Literal["merged"] = "merged"
    keys_are_tokens: ClassVar[bool] = True

    def build(self, sizes: ScoreSizes) -> MergedScore:
        return MergedScore(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class SynthesizerConfig(ScoreTraits):
    """Scores computed from the query's token alone, or learned per pair of positions."""

    kind: Literal["synthesizer"] = "synthesizer"
    conflicts: ClassVar[Mapping[str, str]] = {
        "rotary": "position 'rotary' rotates queries and keys, but score 'synthesizer' has none"
    }
    per_position: ClassVar[bool] = True
    form: Literal["dense", "random"] = "dense"  # computed from the token, or a learned table
    # hidden units per head if form = "dense"; default: the key width
    hidden: int | None = bounded(None, at_least=1)

    def build(self, sizes: ScoreSizes) -> SynthesizerScore:
        hidden = (self.hidden or sizes.key_width) if self.form == "dense" else None
        return SynthesizerScore(sizes, hidden)


class TransformerXLScore(QueryKeyScore):
    """((q_i + u) . k_t + (q_i + v) . r_{i-t}) / sqrt(U), with u and v learned per head.

    r_d = W_R e_d,   e_d[2n] = sin(d w_n),   e_d[2n+1] = cos(d w_n),   w_n = base^(-2n/J)

    The paper computes r for every distance and shifts the rows of the product. Here, with
    p = W_R^T (q_i + v), p is rotated by the query's position and multiplied with the sinusoids of
    the key's position, since sin(i - t) = sin i cos t - cos i sin t, and similarly for the cosine.
    This works for any positions, including those of packed rows and of cached keys.
    """

    not_bilinear = "it also depends on distances"

    def __init__(self, sizes: ScoreSizes, base: float) -> None:
        super().__init__(sizes)
        self.scale, self.base = sizes.key_width**-0.5, base
        self.pos_proj = nn.Linear(sizes.width, sizes.heads * sizes.key_width, bias=False)
        self.content_offset = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.key_width))  # u
        self.distance_offset = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.key_width))  # v

    def terms(self, inputs: ScoreInputs) -> ScoreTerms:
        queries, keys = inputs.queries, inputs.keys
        assert queries is not None and keys is not None
        weight = rearrange(self.pos_proj.weight, "(k U) J -> k U J", k=self.heads)
        projected = ((queries + self.distance_offset) * self.scale) @ weight
        query_sinusoids, key_sinusoids = (
            sinusoids(positions, self.pos_proj.in_features, self.base, queries.dtype)[:, None]
            for positions in (inputs.query_positions, inputs.key_positions)
        )
        return ScoreTerms(
            queries=queries + self.content_offset,
            keys=keys,
            scale=self.scale,
            bias=relative_rotation(projected, query_sinusoids) @ key_sinusoids.mT,
        )

    def factors(self) -> LowRank:
        """Return the content term, (q + u) . k / sqrt(U)."""
        content = self.linear_factors(self.scale)
        offset = content.left_offset + self.content_offset[:, 0] * self.scale
        return replace(content, left_offset=offset)


def sinusoids(
    positions: Int[Tensor, "#B T"], width: int, base: float, dtype: torch.dtype
) -> Float[Tensor, "#B T even"]:
    """Return sin(t w_0), cos(t w_0), sin(t w_1), …, rounding an odd width up."""
    phases = angles(positions, width, base, torch.promote_types(dtype, torch.float32))
    return interleave(phases.sin(), phases.cos(), width + width % 2).to(dtype)


def relative_rotation(
    projected: Float[Tensor, "B k T J"], query_sinusoids: Float[Tensor, "#B 1 T even"]
) -> Float[Tensor, "B k T even"]:
    """Rotate p by the query's position; its product with the key's sinusoids is p . e_{i-t}."""
    missing = query_sinusoids.shape[-1] - projected.shape[-1]  # 1 if the width is odd
    projected = nn.functional.pad(projected, (0, missing))
    sines, cosines = projected[..., 0::2], projected[..., 1::2]
    sine, cosine = query_sinusoids[..., 0::2], query_sinusoids[..., 1::2]
    first, second = cosines * sine - sines * cosine, sines * sine + cosines * cosine
    return interleave(first, second, query_sinusoids.shape[-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerXLConfig(ScoreTraits):
    """The score of Transformer-XL and the Conformer, which depends on distances along one axis.

    In cross-attention, where distances have no meaning, it is the scaled dot product.
    """

    kind: Literal["transformer_xl"] = "transformer_xl"
    conflicts: ClassVar[Mapping[str, str]] = {
        "rotary": "position 'rotary' and score 'transformer_xl' both encode distances"
    }
    uses_distances: ClassVar[bool] = True
    base: float = bounded(10000.0, above=1.0, at_most=1e12)  # of the wavelengths, 2 pi base^(2n/J)

    def build(self, sizes: ScoreSizes) -> TransformerXLScore | DotProductScore:
        if sizes.cross:
            return DotProductScore(sizes, scale=sizes.key_width**-0.5)
        return TransformerXLScore(sizes, self.base)


ScoreConfig = (
    DotConfig
    | ScaledConfig
    | AdditiveConfig
    | MergedConfig
    | SynthesizerConfig
    | TransformerXLConfig
)
