"""Position kinds that act inside every head.

    rotary     rotate the pair (x[i], x[i + U/2]) of queries and keys by the angle t / base^(2i/U)
    alibi      add -slope_h |i - t| to the score, with slopes falling geometrically over the heads
    relative   add a learned b_h[bucket(t - i)] to the score; large offsets share buckets, as in T5

With two axes, rotary divides its pairs among them, and the other two sum over them.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.sinusoids import Sinusoids, angles
from harken.config import bounded

Inputs = Float[Tensor, "B T J"]
Coordinates = Int[Tensor, "#B T axes"]
KeyCoordinates = Int[Tensor, "#B S axes"]
Bias = Float[Tensor, "#B k T S"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionSizes:
    """Sizes that a model passes to its position kind."""

    width: int  # J of the tokens that enter
    key_width: int  # U
    heads: int  # k
    max_length: int  # along each axis
    axes: int = 1


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of every position's angles, computed once per forward pass."""

    cosine: Float[Tensor, "#B 1 T U"]
    sine: Float[Tensor, "#B 1 T U"]  # negative in the first half, where pairs subtract


def rotate(heads: Float[Tensor, "B k T U"], rotation: Rotation) -> Float[Tensor, "B k T U"]:
    """Rotate each pair of a head, so that dot products depend on distances."""
    first, second = heads.chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)
    rotated = torch.addcmul(heads * rotation.cosine, swapped, rotation.sine)
    return rotated.to(heads.dtype)  # angles are float32, and kernels need one dtype


def split_evenly(width: int, axes: int) -> list[int]:
    """Divide the width among the axes as evenly as possible, the first ones wider."""
    return [(width + axes - 1 - axis) // axes for axis in range(axes)]


class Position(nn.Module):
    """Base of the position kinds, which override some of these methods."""

    place: Literal["add", "concat", "heads"] = "heads"  # on the inputs, or in every head
    instead_of_sinusoids = "nothing"  # for the error if `basis` returns None

    def __init__(self, sizes: PositionSizes) -> None:
        super().__init__()
        self.sizes, self.axes = sizes, sizes.axes
        self.max_length: int | None = None  # along each axis; None for any length
        self.token_width = self.width = sizes.width  # J of the inputs, J of what `embed` returns

    def embed(self, inputs: Inputs, coordinates: Coordinates) -> Float[Tensor, "B T width"]:
        """Return the inputs with their positions."""
        return inputs

    def rotation(self, coordinates: Coordinates) -> Rotation | None:
        """Return the rotation of queries and keys, or None."""
        return None

    def bias(self, queries: Coordinates, keys: KeyCoordinates) -> Bias | None:
        """Return the bias to add to the scores, or None."""
        return None

    def basis(self) -> Sinusoids | None:
        """Return the sinusoids along one axis from which a head can be designed."""
        return None

    def without(self) -> "NoPosition":
        """Return a position kind of the same widths that adds nothing."""
        removed = NoPosition(self.sizes)
        removed.max_length, removed.width = self.max_length, self.width
        return removed


class NoPosition(Position):
    """No position: attention does not see order, except through its mask."""

    def embed(self, inputs: Inputs, coordinates: Coordinates) -> Float[Tensor, "B T width"]:
        """Append zeros if it replaces a kind that makes tokens wider."""
        missing = self.width - inputs.shape[-1]
        return F.pad(inputs, (0, missing)) if missing else inputs

    def without(self) -> "NoPosition":
        return self


class Rotary(Position):
    """Rotate queries and keys by their positions, so that scores depend on distances."""

    def __init__(self, sizes: PositionSizes, base: float) -> None:
        super().__init__(sizes)
        self.key_width, self.base = sizes.key_width, base

    def basis(self) -> Sinusoids:
        return Sinusoids(width=self.key_width, base=self.base)

    def rotation(self, coordinates: Coordinates) -> Rotation:
        pairs = enumerate(split_evenly(self.key_width // 2, self.axes))
        phases = [angles(coordinates[..., axis], 2 * count, self.base) for axis, count in pairs]
        joined = torch.cat(phases, dim=-1)[:, None]
        cosine, sine = joined.cos(), joined.sin()
        return Rotation(torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1))


class Alibi(Position):
    """A penalty that grows linearly with distance, with a slope per head."""

    instead_of_sinusoids = "a fixed bias by distance, which no parameter of a layer can change"
    slopes: Tensor

    def __init__(self, sizes: PositionSizes) -> None:
        super().__init__(sizes)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(sizes.heads)), persistent=False)

    def bias(self, queries: Coordinates, keys: KeyCoordinates) -> Bias:
        distance = (queries[:, :, None] - keys[:, None]).abs().sum(dim=-1)
        return -self.slopes[:, None, None] * distance[:, None]


def alibi_slopes(heads: int) -> list[float]:
    """Return 2^(-8/k), 2^(-16/k), …; for other k than powers of 2, add odd ones of the next."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]
    return slopes + between


class Relative(Position):
    """A learned bias for every bucket of offsets, head and axis."""

    instead_of_sinusoids = "one table for all layers, which a head of one layer cannot have alone"

    def __init__(self, sizes: PositionSizes, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__(sizes)
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal
        self.tables = nn.ModuleList(nn.Embedding(buckets, sizes.heads) for _ in range(sizes.axes))

    def bias(self, queries: Coordinates, keys: KeyCoordinates) -> Bias:
        offsets = keys[:, None] - queries[:, :, None]
        buckets = offset_buckets(offsets, self.buckets, self.max_distance, self.causal)
        biases = [table(buckets[..., axis]) for axis, table in enumerate(self.tables)]
        return torch.stack(biases).sum(dim=0).permute(0, 3, 1, 2)


def offset_buckets(
    offsets: Int[Tensor, "*shape"], buckets: int, max_distance: int, causal: bool
) -> Int[Tensor, "*shape"]:
    """Return T5's buckets: half for single small distances, half widening to `max_distance`.

    Without `causal`, half of all buckets are for keys before the query and half for those after.
    """
    first = torch.zeros_like(offsets)
    if causal:
        distance = (-offsets).clamp(min=0)
    else:
        buckets //= 2
        first = (offsets > 0) * buckets
        distance = offsets.abs()
    exact = buckets // 2
    growth = torch.log(distance.float() / exact + 1e-20) / math.log(max_distance / exact)
    wide = exact + (growth.clamp(min=0) * (buckets - exact)).long()
    return first + torch.where(distance < exact, distance, wide.clamp(max=buckets - 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class RotaryConfig:
    """Rotary position embedding of queries and keys (RoPE)."""

    kind: Literal["rotary"] = "rotary"
    base: float = bounded(10000.0, above=1.0, at_most=1e12)  # of the wavelengths, 2 pi base^(2i/U)

    def build(self, sizes: PositionSizes) -> Rotary:
        return Rotary(sizes, self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class AlibiConfig:
    """A fixed penalty per head that grows linearly with distance (ALiBi)."""

    kind: Literal["alibi"] = "alibi"

    def build(self, sizes: PositionSizes) -> Alibi:
        return Alibi(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class RelativeConfig:
    """A learned bias per bucket of offsets, shared by all layers (T5)."""

    kind: Literal["relative"] = "relative"
    buckets: int = bounded(32, at_least=4)  # number of buckets, for both directions
    max_distance: int = bounded(128, at_least=2)  # tokens; larger distances share the last bucket
    causal: bool = False  # use all buckets for keys before the query

    def __post_init__(self) -> None:
        if self.max_distance <= self.buckets:
            raise ValueError(
                f"max_distance {self.max_distance} is not above buckets {self.buckets}"
            )

    def build(self, sizes: PositionSizes) -> Relative:
        return Relative(sizes, self.buckets, self.max_distance, self.causal)
