"""The score of Transformer-XL and the Conformer, which depends on relative positions.

    score(i, t) = ((q_i + u) . k_t + (q_i + v) . r_{i-t}) / sqrt(U),   r_d = W_R wave(d)
    wave(d)[2n] = sin(d w_n),  wave(d)[2n+1] = cos(d w_n),  w_n = base^(-2n/J)

u and v are learned per head. The paper computes r for every distance and shifts the rows of the
product. Here, with p = W_R^T (q_i + v) and

    sin(i - t) = sin i cos t - cos i sin t,   cos(i - t) = cos i cos t + sin i sin t,

p is rotated by the query's position and multiplied with the sinusoids of the key's position. So any
positions work, also those of a packed row or of cached keys.
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
    QueryKeyScore,
    ScoreInputs,
    ScoreSizes,
    ScoreTraits,
)
from harken.attention.relative import angles
from harken.config import bounded


class TransformerXLScore(QueryKeyScore):
    """Scores of content and distance, each with its offset of the query."""

    not_a_product = "its queries are compared with distances as well"

    def __init__(self, sizes: ScoreSizes, base: float) -> None:
        super().__init__(sizes)
        self.scale, self.base = sizes.key_width**-0.5, base
        self.wave_width = sizes.width
        self.pos_proj = nn.Linear(sizes.width, sizes.heads * sizes.key_width, bias=False)
        self.content_offset = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.key_width))  # u
        self.distance_offset = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.key_width))  # v

    def terms(self, inputs: ScoreInputs) -> ScoreTerms:
        queries, keys = inputs.queries, inputs.keys
        assert queries is not None and keys is not None
        weight = rearrange(self.pos_proj.weight, "(k U) J -> k U J", k=self.heads)
        projected = ((queries + self.distance_offset) * self.scale) @ weight
        query_waves, key_waves = (
            sinusoids(positions, self.wave_width, self.base, queries.dtype)[:, None]
            for positions in (inputs.query_positions, inputs.key_positions)
        )
        return ScoreTerms(
            queries=queries + self.content_offset,
            keys=keys,
            scale=self.scale,
            bias=relative_rotation(projected, query_waves) @ key_waves.mT,
        )

    def factors(self) -> LowRank:
        """Return the part that compares contents, (q + u) . k / sqrt(U)."""
        content = self.linear_factors(self.scale)
        offset = content.left_offset + self.content_offset[:, 0] * self.scale
        return replace(content, left_offset=offset)


def sinusoids(
    positions: Int[Tensor, "#B T"], width: int, base: float, dtype: torch.dtype
) -> Float[Tensor, "#B T even"]:
    """Return sin(t w_0), cos(t w_0), sin(t w_1), …; an odd width is rounded up."""
    phases = angles(positions, width, base, torch.promote_types(dtype, torch.float32))
    return torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(start_dim=-2).to(dtype)


def relative_rotation(
    projected: Float[Tensor, "B k T J"], waves: Float[Tensor, "#B 1 T even"]
) -> Float[Tensor, "B k T even"]:
    """Rotate by the query's sinusoids; the product with the key's is then that of the distance."""
    missing = waves.shape[-1] - projected.shape[-1]  # the cosine that an odd width leaves out
    projected = nn.functional.pad(projected, (0, missing))
    sines, cosines = projected[..., 0::2], projected[..., 1::2]
    sine, cosine = waves[..., 0::2], waves[..., 1::2]
    return torch.stack(
        (cosines * sine - sines * cosine, sines * sine + cosines * cosine), dim=-1
    ).flatten(start_dim=-2)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerXLConfig(ScoreTraits):
    """The score of Transformer-XL and the Conformer; it includes distances along one axis.

    In cross-attention, where distances have no meaning, it is the scaled dot product.
    """

    kind: Literal["transformer_xl"] = "transformer_xl"
    conflicts: ClassVar[Mapping[str, str]] = {
        "rotary": "position 'rotary' rotates queries and keys by distance, "
        "and score 'transformer_xl' compares distances already"
    }
    distances: ClassVar[bool] = True
    base: float = bounded(10000.0, above=1.0, at_most=1e12)  # of the wavelengths, 2 pi base^(2n/J)

    def build(self, sizes: ScoreSizes) -> TransformerXLScore | DotProductScore:
        if sizes.cross:
            return DotProductScore(sizes, scale=sizes.key_width**-0.5)
        return TransformerXLScore(sizes, self.base)
