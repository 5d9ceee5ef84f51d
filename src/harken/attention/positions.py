"""Positional encodings of the inputs of a model.

These kinds add a position vector to each token vector, or concatenate the two. The kinds in
`relative.py` act inside every head.

    learned    a trained vector for every position
    sinusoid   e_t[2i] = sin(t / base^(2i/J)),  e_t[2i+1] = cos(t / base^(2i/J))
    fourier    e_t[2i] = cos(pi (i+1) t / span),  e_t[2i+1] = sin(pi (i+1) t / span)

Coordinates have one axis (time) or two (x and y of an image). With two axes, the vector of x and
the vector of y are concatenated, each about J/2 wide. The Fourier vectors have period 2 span.
Inputs longer than span are rejected, since offsets d and d - 2 span would be indistinguishable.
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

CombineMode = Literal["add", "concat"]
Positions = Int[Tensor, "#B T"]


class InputPosition(Position):
    """Base class of encodings that add or concatenate vectors. Subclasses define `axis_vectors`."""

    def __init__(self, sizes: PositionSizes, combine: CombineMode) -> None:
        super().__init__(sizes)
        self.combine, self.part_widths = combine, split_evenly(sizes.width, sizes.axes)
        self.width = sizes.width * (2 if combine == "concat" else 1)

    def axis_vectors(self, axis: int, positions: Positions) -> Float[Tensor, "#B T part"]:
        raise NotImplementedError

    def vectors(self, coordinates: Coordinates) -> Float[Tensor, "#B T J"]:
        """Return the position vectors, one part per axis."""
        parts = [self.axis_vectors(axis, coordinates[..., axis]) for axis in range(self.axes)]
        return torch.cat(parts, dim=-1)

    def embed(self, inputs: Inputs, coordinates: Coordinates) -> Float[Tensor, "B T width"]:
        vectors = self.vectors(coordinates).to(inputs.dtype)
        if self.combine == "add":
            return inputs + vectors
        return torch.cat((inputs, vectors.expand(inputs.shape[0], -1, -1)), dim=-1)


class LearnedPosition(InputPosition):
    """A learned vector per position and axis, up to `max_length`."""

    description = "learned vectors"

    def __init__(self, sizes: PositionSizes, combine: CombineMode) -> None:
        super().__init__(sizes, combine)
        self.max_length = sizes.max_length
        tables = (nn.Embedding(sizes.max_length, width) for width in self.part_widths)
        self.tables = nn.ModuleList(tables)

    def axis_vectors(self, axis: int, positions: Positions) -> Float[Tensor, "#B T part"]:
        return cast(Tensor, self.tables[axis](positions))


class Sinusoid(InputPosition):
    """The sines and cosines of "Attention is all you need", sine first."""

    def __init__(self, sizes: PositionSizes, combine: CombineMode, base: float) -> None:
        super().__init__(sizes, combine)
        self.base = base

    def basis(self) -> Sinusoids | None:
        return None if self.axes > 1 else Sinusoids(width=self.token_width, base=self.base)

    def axis_vectors(self, axis: int, positions: Positions) -> Float[Tensor, "#B T part"]:
        phases = angles(positions, self.part_widths[axis], self.base)
        return interleave(phases.sin(), phases.cos(), self.part_widths[axis])


class Fourier(InputPosition):
    """Cosines and sines of 1, 2, 3, … half periods over the span, as in `claims/lecture29.py`."""

    def __init__(self, sizes: PositionSizes, combine: CombineMode, span: int) -> None:
        super().__init__(sizes, combine)
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
    """No positional encoding: the order has an effect only through the mask and the score."""

    kind: Literal["none"] = "none"

    def build(self, sizes: PositionSizes) -> NoPosition:
        return NoPosition(sizes)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedConfig:
    """A learned vector for each position."""

    kind: Literal["learned"] = "learned"
    combine: CombineMode = "add"  # add to the token vectors, or concatenate (doubles the width)

    def build(self, sizes: PositionSizes) -> LearnedPosition:
        return LearnedPosition(sizes, self.combine)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinusoidConfig:
    """Fixed sines and cosines, as in "Attention is all you need"."""

    kind: Literal["sinusoid"] = "sinusoid"
    combine: CombineMode = "add"  # add to the token vectors, or concatenate (doubles the width)
    # base of the wavelengths, 2 pi base^(2i/J) for pair i
    base: float = bounded(10000.0, above=1.0, at_most=1e12)

    def build(self, sizes: PositionSizes) -> Sinusoid:
        return Sinusoid(sizes, self.combine, self.base)


@dataclass(frozen=True, kw_only=True, slots=True)
class FourierConfig:
    """Cosines and sines of 1, 2, 3, … half periods over `span` tokens."""

    kind: Literal["fourier"] = "fourier"
    combine: CombineMode = "add"  # add to the token vectors, or concatenate (doubles the width)
    # length of the longest half period in tokens; default: the model's maximum length
    span: int | None = bounded(None, at_least=2)

    def build(self, sizes: PositionSizes) -> Fourier:
        return Fourier(sizes, self.combine, self.span or sizes.max_length)


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
    """Return the width of the model: the token width, doubled if positions are concatenated."""
    return width * (2 if getattr(position, "combine", "add") == "concat" else 1)
