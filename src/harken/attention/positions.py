"""Position kinds that act on the inputs of a model.

Attention alone does not see order. A position kind adds it in one of two places: here, as a vector
that is added to the token's or concatenated with it; or inside every head (`relative.py`).

    learned    a free vector for every position
    sinusoid   e_t[2i] = sin(t / base^(2i/J)),  e_t[2i+1] = cos(t / base^(2i/J))
    fourier    e_t[2i] = cos(pi (i+1) t / span),  e_t[2i+1] = sin(pi (i+1) t / span)

Coordinates have one axis (time) or two (x and y of an image), among which the width is divided. A
Fourier basis repeats after 2 span, so that offsets of span or more are ambiguous: longer inputs are
refused.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.relative import (
    AlibiConfig,
    NoPosition,
    PositionSizes,
    RelativeConfig,
    RotaryConfig,
    angles,
)
from harken.attention.relative import Position as Position
from harken.attention.waves import Waves
from harken.config import bounded

Place = Literal["add", "concat"]


class InputPosition(Position):
    """Base of the kinds that act on the inputs; they differ in `vectors`."""

    def __init__(self, sizes: PositionSizes, place: Place) -> None:
        super().__init__(sizes)
        self.place = place
        self.width = sizes.width * (2 if place == "concat" else 1)

    def vectors(self, coordinates: Int[Tensor, "#B T axes"]) -> Float[Tensor, "#B T J"]:
        raise NotImplementedError

    def embed(
        self, inputs: Float[Tensor, "B T J"], coordinates: Int[Tensor, "#B T axes"]
    ) -> Float[Tensor, "B T width"]:
        placed = self.vectors(coordinates).to(inputs.dtype)
        if self.place == "add":
            return inputs + placed
        return torch.cat((inputs, placed.expand(inputs.shape[0], -1, -1)), dim=-1)


def shares(width: int, axes: int) -> list[int]:
    """Divide the width among the axes as evenly as possible, the first ones wider."""
    return [(width + axes - 1 - axis) // axes for axis in range(axes)]


class Learned(InputPosition):
    """A learned vector per position and axis, up to `length`."""

    no_waves = "free vectors, mixed with contents of their own size"

    def __init__(self, sizes: PositionSizes, place: Place) -> None:
        super().__init__(sizes, place)
        self.length = sizes.length
        self.tables = nn.ModuleList(
            nn.Embedding(sizes.length, part) for part in shares(sizes.width, sizes.axes)
        )

    def vectors(self, coordinates: Int[Tensor, "#B T axes"]) -> Float[Tensor, "#B T J"]:
        vectors = [table(coordinates[..., axis]) for axis, table in enumerate(self.tables)]
        return torch.cat(vectors, dim=-1)


class Sinusoid(InputPosition):
    """The sines and cosines of "Attention is all you need", sine first."""

    def __init__(self, sizes: PositionSizes, place: Place, base: float) -> None:
        super().__init__(sizes, place)
        self.parts, self.base = shares(sizes.width, sizes.axes), base

    def waves(self) -> Waves | None:
        return None if self.axes > 1 else Waves(width=self.token_width, base=self.base)

    def vectors(self, coordinates: Int[Tensor, "#B T axes"]) -> Float[Tensor, "#B T J"]:
        waves = []
        for axis, part in enumerate(self.parts):
            turned = angles(coordinates[..., axis], part, self.base)
            waves.append(interleave(turned.sin(), turned.cos(), part))
        return torch.cat(waves, dim=-1)


class Fourier(InputPosition):
    """The lecture's basis: multiples of half a turn over the span, cosine first."""

    def __init__(self, sizes: PositionSizes, place: Place, span: int) -> None:
        super().__init__(sizes, place)
        self.parts, self.span = shares(sizes.width, sizes.axes), span
        self.length = span

    def waves(self) -> Waves | None:
        if self.axes > 1:
            return None
        return Waves(kind="fourier", width=self.token_width, span=self.span)

    def vectors(self, coordinates: Int[Tensor, "#B T axes"]) -> Float[Tensor, "#B T J"]:
        waves = []
        for axis, part in enumerate(self.parts):
            turns = torch.arange(1, (part + 1) // 2 + 1, device=coordinates.device)
            turned = coordinates[..., axis, None] * turns * (math.pi / self.span)
            waves.append(interleave(turned.cos(), turned.sin(), part))
        return torch.cat(waves, dim=-1)


def interleave(
    even: Float[Tensor, "#B T pairs"], odd: Float[Tensor, "#B T pairs"], width: int
) -> Float[Tensor, "#B T J"]:
    """even[0], odd[0], even[1], odd[1], … up to the width."""
    return torch.stack((even, odd), dim=-1).flatten(start_dim=-2)[..., :width]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPositionConfig:
    """No position at all."""

    kind: Literal["none"] = "none"

    def build(self, sizes: PositionSizes) -> NoPosition:
        return NoPosition(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedConfig:
    """A learned vector for each of the model's positions."""

    kind: Literal["learned"] = "learned"
    place: Place = "add"

    def build(self, sizes: PositionSizes) -> Learned:
        return Learned(sizes, self.place)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinusoidConfig:
    """Fixed sines and cosines of falling frequency."""

    kind: Literal["sinusoid"] = "sinusoid"
    place: Place = "add"
    base: float = bounded(10000.0, above=1.0, at_most=1e12)

    def build(self, sizes: PositionSizes) -> Sinusoid:
        return Sinusoid(sizes, self.place, self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class FourierConfig:
    """Cosines and sines of 1, 2, 3, … half turns over `span`, the model's length if not given."""

    kind: Literal["fourier"] = "fourier"
    place: Place = "add"
    span: int | None = bounded(None, at_least=2)

    def build(self, sizes: PositionSizes) -> Fourier:
        return Fourier(sizes, self.place, self.span or sizes.length)


PositionConfig = (
    NoPositionConfig
    | LearnedConfig
    | SinusoidConfig
    | FourierConfig
    | RotaryConfig
    | AlibiConfig
    | RelativeConfig
)


def model_width(position: PositionConfig, width: int) -> int:
    """Return the width of a model for tokens of this width: twice that with place 'concat'."""
    return width * (2 if getattr(position, "place", "add") == "concat" else 1)
