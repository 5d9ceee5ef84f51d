"""The score of Transformer-XL and the Conformer, which depends on relative positions.

    score(i, t) = ((q_i + u) . k_t + (q_i + v) . r_{i-t}) / sqrt(U),   r_d = W_R wave(d)
    wave(d)[2n] = sin(d w_n),  wave(d)[2n+1] = cos(d w_n),  w_n = base^(-2n/J)

u and v are learned, a pair for every head. The paper makes r for every distance and shifts the rows
of the product into place. Here nothing is shifted: with p = W_R^T (q_i + v), and because

    sin(i - t) = sin i cos t - cos i sin t,   cos(i - t) = cos i cos t + sin i sin t,

rotating p by the query's position leaves a product with the key's own sinusoids, which depends on
distances only. So any positions work, also those of a packed row or of cached keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.kernels import ScoreTerms
from harken.attention.low_rank import LowRank
from harken.attention.query_key import (
    DotProductScore,
    KeyPositions,
    Keys,
    Queries,
    QueryKeyScore,
    QueryPositions,
    ScoreSizes,
    ScoreTraits,
    Tokens,
)
from harken.config import bounded


class TransformerXLScore(QueryKeyScore):
    """Content and distance, each compared with the query and an offset of its own."""

    not_a_product = "its queries are compared with distances as well"

    def __init__(self, sizes: ScoreSizes, base: float) -> None:
        super().__init__(sizes)
        self.scale, self.base = sizes.key_width**-0.5, base
        self.wave_width = sizes.width
        self.pos_proj = nn.Linear(sizes.width, sizes.heads * sizes.key_width, bias=False)
        self.content_offset = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.key_width))  # u
        self.distance_offset = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.key_width))  # v

    def terms(
        self,
        inputs: Tokens,
        queries: Queries,
        keys: Keys,
        query_positions: QueryPositions,
        key_positions: KeyPositions,
    ) -> ScoreTerms:
        assert queries is not None and keys is not None
        carry = rearrange(self.pos_proj.weight, "(k U) J -> k U J", k=self.heads)
        asked = ((queries + self.distance_offset) * self.scale) @ carry
        waves = sinusoids(query_positions, self.wave_width, self.base, queries.dtype)
        turned = relative_rotation(asked, waves)
        standing = sinusoids(key_positions, self.wave_width, self.base, queries.dtype)
        return ScoreTerms(
            queries=queries + self.content_offset,
            keys=keys,
            scale=self.scale,
            bias=turned @ standing[:, None].transpose(-2, -1),
        )

    def factors(self) -> LowRank:
        """Return the part that compares contents, (q + u) . k / sqrt(U)."""
        content = self.linear_factors(self.scale)
        offset = content.left_offset + self.content_offset[:, 0] * self.scale
        return replace(content, left_offset=offset)


def sinusoids(
    positions: Int[Tensor, "#B T"], width: int, base: float, dtype: torch.dtype
) -> Float[Tensor, "#B T even"]:
    """sin(t w_0), cos(t w_0), sin(t w_1), …; an odd width is rounded up to whole pairs."""
    # Angles in float32 at the least, or late positions blur.
    precise = torch.promote_types(dtype, torch.float32)
    steps = torch.arange(0, width, 2, device=positions.device, dtype=precise)
    angles = positions[..., None].to(precise) * base ** (-steps / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(start_dim=-2).to(dtype)


def relative_rotation(
    asked: Float[Tensor, "B k T J"], standing: Float[Tensor, "#B T even"]
) -> Float[Tensor, "B k T even"]:
    """Rotate `asked` so that its product with a key's sinusoids is that with their distance."""
    missing = standing.shape[-1] - asked.shape[-1]  # the cosine that an odd width leaves out
    asked, standing = nn.functional.pad(asked, (0, missing)), standing[:, None]
    sines, cosines = asked[..., 0::2], asked[..., 1::2]
    sine, cosine = standing[..., 0::2], standing[..., 1::2]
    return torch.stack(
        (cosines * sine - sines * cosine, sines * sine + cosines * cosine), dim=-1
    ).flatten(start_dim=-2)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerXLConfig(ScoreTraits):
    """The Conformer's own score; it knows distances along one axis, so it needs no position.

    In cross-attention it is the scaled dot product: positions of a target and of its source are
    unrelated, so the terms of distance are left out.
    """

    kind: Literal["transformer_xl"] = "transformer_xl"
    conflicts: ClassVar[Mapping[str, str]] = {
        "rotary": "position 'rotary' turns queries and keys by distance, "
        "and score 'transformer_xl' compares distances already"
    }
    distances: ClassVar[bool] = True
    base: float = bounded(10000.0, above=1.0, at_most=1e12)

    def build(self, sizes: ScoreSizes) -> TransformerXLScore | DotProductScore:
        if sizes.cross:
            return DotProductScore(sizes, scale=sizes.key_width**-0.5)
        return TransformerXLScore(sizes, self.base)
