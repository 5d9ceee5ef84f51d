"""Positional encodings that act inside every head.

    rotary     rotate the pair (x[n], x[n + U/2]) of the query or key at t by t / base^(2n/W), where
               the first W/2 pairs are rotated; W = U unless `fraction` is set
    alibi      add -slope_h |i - t| to score(i, t), with slopes falling geometrically over the heads
    relative   add a learned b_h[bucket(t - i)] to score(i, t); large offsets share buckets (T5)

Here score(i, t) is the score of the query at i and the key at t in head h. With two axes, `rotary`
divides its pairs between them; `alibi` and `relative` sum over both.
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
    """Sizes that a model passes to its positional encoding."""

    width: int  # J of the inputs
    key_width: int  # U
    heads: int  # k
    max_length: int  # along each axis
    axes: int = 1


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of every position's angles, computed once per forward pass."""

    cosine: Float[Tensor, "#B 1 T U"]
    sine: Float[Tensor, "#B 1 T U"]  # negated in the first half


def rotate(heads: Float[Tensor, "B k T U"], rotation: Rotation) -> Float[Tensor, "B k T U"]:
    """Rotate each pair; then q . k depends on the positions of q and k only by their difference."""
    first, second = heads.chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)
    rotated = torch.addcmul(heads * rotation.cosine, swapped, rotation.sine)
    return rotated.to(heads.dtype)  # angles are float32, and kernels require equal dtypes


def split_evenly(width: int, axes: int) -> list[int]:
    """Divide the width among the axes as evenly as possible; the first axes get the remainder."""
    return [(width + axes - 1 - axis) // axes for axis in range(axes)]


class Position(nn.Module):
    """Base of the positional encodings. Subclasses override some of these methods."""

    combine: Literal["add", "concat"] | None = None  # how `embed` changes the inputs, if it does
    description = "none"  # completes the error "expected sinusoidal positions, got …"

    def __init__(self, sizes: PositionSizes) -> None:
        super().__init__()
        self.sizes, self.axes = sizes, sizes.axes
        self.max_length: int | None = None  # along each axis; None for any length
        self.token_width = self.width = sizes.width  # J of the inputs and of the result of `embed`

    def embed(self, inputs: Inputs, coordinates: Coordinates) -> Float[Tensor, "B T width"]:
        """Return the inputs, with position vectors added or concatenated."""
        return inputs

    def rotation(self, coordinates: Coordinates) -> Rotation | None:
        """Return the rotation of queries and keys, or None."""
        return None

    def bias(self, queries: Coordinates, keys: KeyCoordinates) -> Bias | None:
        """Return the bias to add to the scores, or None."""
        return None

    def basis(self) -> Sinusoids | None:
        """Return the sinusoids of one axis, with which `harken.design` computes heads, or None."""
        return None

    def to_no_position(self) -> "NoPosition":
        """Return an encoding of the same widths without position information."""
        replacement = NoPosition(self.sizes)
        replacement.max_length, replacement.width = self.max_length, self.width
        return replacement


class NoPosition(Position):
    """No positional encoding: the order has an effect only through the mask and the score."""

    def embed(self, inputs: Inputs, coordinates: Coordinates) -> Float[Tensor, "B T width"]:
        """Append zeros if this replaces an encoding that concatenates vectors."""
        missing = self.width - inputs.shape[-1]
        return F.pad(inputs, (0, missing)) if missing else inputs

    def to_no_position(self) -> "NoPosition":
        return self


class Rotary(Position):
    """Rotate queries and keys by their positions, so that scores depend on distances."""

    def __init__(self, sizes: PositionSizes, base: float, fraction: float) -> None:
        super().__init__(sizes)
        self.key_width, self.base = sizes.key_width, base
        self.pairs = int(fraction * sizes.key_width) // 2

    def basis(self) -> Sinusoids | None:
        if 2 * self.pairs < self.key_width:
            return None
        return Sinusoids(width=self.key_width, base=self.base)

    def rotation(self, coordinates: Coordinates) -> Rotation:
        pairs = enumerate(split_evenly(self.pairs, self.axes))
        phases = [angles(coordinates[..., axis], 2 * count, self.base) for axis, count in pairs]
        joined = torch.cat(phases, dim=-1)[:, None]
        joined = F.pad(joined, (0, self.key_width // 2 - self.pairs))  # pairs that are not rotated
        cosine, sine = joined.cos(), joined.sin()
        return Rotation(torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1))


class Alibi(Position):
    """A penalty that grows linearly with distance, with a slope per head."""

    description = "a fixed bias, which no parameter of a layer can change"
    slopes: Tensor

    def __init__(self, sizes: PositionSizes) -> None:
        super().__init__(sizes)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(sizes.heads)), persistent=False)

    def bias(self, queries: Coordinates, keys: KeyCoordinates) -> Bias:
        distance = (queries[:, :, None] - keys[:, None]).abs().sum(dim=-1)
        return -self.slopes[:, None, None] * distance[:, None]


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes of k heads: 2^(-8/k), 2^(-16/k), …, 2^(-8) if k is a power of 2.

    For other k, let p be the largest power of 2 below k: return the p slopes of p heads, then the
    first, third, … of the slopes of 2p heads.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    others = [2.0 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]
    return slopes + others


class Relative(Position):
    """A learned bias for every bucket of offsets, head and axis."""

    description = "a bias that all layers share, which one head cannot change alone"

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
    """Return T5's buckets: half hold one distance each, the others divide log(distance) evenly.

    Without `causal`, half of the buckets are for keys up to the query and half for keys after it.
    """
    first_bucket = torch.zeros_like(offsets)
    if causal:
        distance = (-offsets).clamp(min=0)
    else:
        buckets //= 2
        first_bucket = (offsets > 0) * buckets
        distance = offsets.abs()
    exact = buckets // 2
    fraction = torch.log(distance.float() / exact + 1e-20) / math.log(max_distance / exact)
    log_bucket = exact + (fraction.clamp(min=0) * (buckets - exact)).long()
    return first_bucket + torch.where(distance < exact, distance, log_bucket.clamp(max=buckets - 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class RotaryConfig:
    """Rotary position embedding of queries and keys (RoPE)."""

    kind: Literal["rotary"] = "rotary"
    # base of the wavelengths, 2 pi base^(2n/U) for pair n
    base: float = bounded(10000.0, above=1.0, at_most=1e12)
    fraction: float = bounded(1.0, above=0.0, at_most=1.0)  # share of the pairs that are rotated

    def build(self, sizes: PositionSizes) -> Rotary:
        return Rotary(sizes, self.base, self.fraction)


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
    # total number of buckets; without `causal`, half of them for keys after the query
    buckets: int = bounded(32, at_least=4)
    max_distance: int = bounded(128, at_least=2)  # tokens; larger distances share the last bucket
    causal: bool = False  # use all buckets for keys up to the query

    def __post_init__(self) -> None:
        if self.max_distance <= self.buckets:
            raise ValueError(
                f"max_distance: expected above {self.buckets} (buckets), got {self.max_distance}"
            )

    def build(self, sizes: PositionSizes) -> Relative:
        return Relative(sizes, self.buckets, self.max_distance, self.causal)
