"""Position kinds that act on the inputs of a model.

Attention alone ignores order. The kinds below add a position vector to each token vector, or
concatenate the two. The kinds in `relative.py` act inside every head.

    learned    a trained vector for every position
    sinusoid   e_t[2i] = sin(t / base^(2i/J)),  e_t[2i+1] = cos(t / base^(2i/J))
    fourier    e_t[2i] = cos(pi (i+1) t / span),  e_t[2i+1] = sin(pi (i+1) t / span)

Coordinates have one axis (time) or two (x and y of an image); each axis has a part of the vector.
The Fourier basis has period 2 span, so inputs longer than span are refused as ambiguous.
"""

import math
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from harken.attention.relative import (
    AlibiConfig,
    Coordinates,
    Inputs,
    NoPosition,
    PositionSizes,
    RelativeConfig,
    RotaryConfig,
    split_evenly,
)
from harken.attention.relative import Position as Position
from harken.attention.sinusoids import Sinusoids, angles, interleave
from harken.config import bounded

Place = Literal["add", "concat"]
Positions = Int[Tensor, "#B T"]


class InputPosition(Position):
    """Base of the kinds that act on the inputs; they differ in `axis_vectors`."""

    def __init__(self, sizes: PositionSizes, place: Place) -> None:
        super().__init__(sizes)
        self.place, self.part_widths = place, split_evenly(sizes.width, sizes.axes)
        self.width = sizes.width * (2 if place == "concat" else 1)

    def axis_vectors(self, axis: int, positions: Positions) -> Float[Tensor, "#B T part"]:
        raise NotImplementedError

    def vectors(self, coordinates: Coordinates) -> Float[Tensor, "#B T J"]:
        """Return the position vectors, one part per axis."""
        parts = [self.axis_vectors(axis, coordinates[..., axis]) for axis in range(self.axes)]
        return torch.cat(parts, dim=-1)

    def embed(self, inputs: Inputs, coordinates: Coordinates) -> Float[Tensor, "B T width"]:
        vectors = self.vectors(coordinates).to(inputs.dtype)
        if self.place == "add":
            return inputs + vectors
        return torch.cat((inputs, vectors.expand(inputs.shape[0], -1, -1)), dim=-1)


class LearnedPosition(InputPosition):
    """A learned vector per position and axis, up to `max_length`."""

    instead_of_sinusoids = "learned vectors, mixed with the tokens"

    def __init__(self, sizes: PositionSizes, place: Place) -> None:
        super().__init__(sizes, place)
        self.max_length = sizes.max_length
        tables = (nn.Embedding(sizes.max_length, width) for width in self.part_widths)
        self.tables = nn.ModuleList(tables)

    def axis_vectors(self, axis: int, positions: Positions) -> Float[Tensor, "#B T part"]:
        return cast(Tensor, self.tables[axis](positions))


class Sinusoid(InputPosition):
    """The sines and cosines of "Attention is all you need", sine first."""

    def __init__(self, sizes: PositionSizes, place: Place, base: float) -> None:
        super().__init__(sizes, place)
        self.base = base

    def basis(self) -> Sinusoids | None:
        return None if self.axes > 1 else Sinusoids(width=self.token_width, base=self.base)

    def axis_vectors(self, axis: int, positions: Positions) -> Float[Tensor, "#B T part"]:
        phases = angles(positions, self.part_widths[axis], self.base)
        return interleave(phases.sin(), phases.cos(), self.part_widths[axis])


class Fourier(InputPosition):
    """Cosines and sines of 1, 2, 3, … half turns over the span, as in `claims/lecture29.py`."""

    def __init__(self, sizes: PositionSizes, place: Place, span: int) -> None:
        super().__init__(sizes, place)
        self.max_length = self.span = span

    def basis(self) -> Sinusoids | None:
        if self.axes > 1:
            return None
        return Sinusoids(kind="fourier", width=self.token_width, span=self.span)

    def axis_vectors(self, axis: int, positions: Positions) -> Float[Tensor, "#B T part"]:
        half_turns = torch.arange(1, (self.part_widths[axis] + 1) // 2 + 1, device=positions.device)
        phases = positions[..., None] * half_turns * (math.pi / self.span)
        return interleave(phases.cos(), phases.sin(), self.part_widths[axis])


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPositionConfig:
    """No position: attention sees order only through its mask."""

    kind: Literal["none"] = "none"

    def build(self, sizes: PositionSizes) -> NoPosition:
        return NoPosition(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedConfig:
    """A learned vector for each position."""

    kind: Literal["learned"] = "learned"
    place: Place = "add"  # add to the token vectors, or concatenate (doubles the width)

    def build(self, sizes: PositionSizes) -> LearnedPosition:
        return LearnedPosition(sizes, self.place)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinusoidConfig:
    """Fixed sines and cosines, as in "Attention is all you need"."""

    kind: Literal["sinusoid"] = "sinusoid"
    place: Place = "add"  # add to the token vectors, or concatenate (doubles the width)
    base: float = bounded(10000.0, above=1.0, at_most=1e12)  # of the wavelengths, 2 pi base^(2i/J)

    def build(self, sizes: PositionSizes) -> Sinusoid:
        return Sinusoid(sizes, self.place, self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class FourierConfig:
    """Cosines and sines of 1, 2, 3, … half turns over `span` tokens."""

    kind: Literal["fourier"] = "fourier"
    place: Place = "add"  # add to the token vectors, or concatenate (doubles the width)
    span: int | None = bounded(None, at_least=2)  # tokens; default: the model's maximum length

    def build(self, sizes: PositionSizes) -> Fourier:
        return Fourier(sizes, self.place, self.span or sizes.max_length)


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
