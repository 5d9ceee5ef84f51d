"""Sines and cosines of positions, and the rotation that shifts a position.

    sinusoid   e_t[2i] = sin(w_i t),  e_t[2i+1] = cos(w_i t),   w_i = base^(-2i/J)
    fourier    e_t[2i] = cos(w_i t),  e_t[2i+1] = sin(w_i t),   w_i = pi (i+1) / span
    shift      e_{t-d} = A e_t,   A rotates each pair by b = w_i d

With the sine first, the blocks of A are [[cos b, -sin b], [sin b, cos b]]; with the cosine first,
the sines have the opposite sign. The score e_s . A e_t of query t and key s is largest at
s = t - d. The merged matrix W~ of `merging.py` is A transposed, because its query is on the left.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from harken.errors import UserError


def angles(
    positions: Int[Tensor, "#B T"], width: int, base: float, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "#B T pairs"]:
    """Return t / base^(2i / width). Half precision is too coarse for large positions t."""
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=dtype) / width
    angle: Tensor = positions[..., None].to(dtype) * base**-exponents
    return angle


def interleave(
    even: Float[Tensor, "*B T pairs"], odd: Float[Tensor, "*B T pairs"], width: int
) -> Float[Tensor, "*B T J"]:
    """Return even[0], odd[0], even[1], odd[1], …, truncated to `width` elements."""
    return torch.stack((even, odd), dim=-1).flatten(start_dim=-2)[..., :width]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sinusoids:
    """Sinusoidal position vectors. `sinusoid` uses `base`, `fourier` uses `span`."""

    kind: Literal["sinusoid", "fourier"] = "sinusoid"
    width: int
    base: float = 10000.0
    span: int | None = None

    def __post_init__(self) -> None:
        if self.width < 2 or self.width % 2:
            raise UserError(
                f"sinusoids: expected an even width of at least 2, got {self.width}",
                fix="make the width of the positions even",
            )
        if not 1 < self.base < math.inf:
            raise UserError(
                f"sinusoids: expected a base above 1, got {self.base:g}",
                fix="use for example 10000",
            )
        if (self.kind == "fourier") != (self.span is not None):
            raise UserError(
                "sinusoids: expected a span if and only if kind is 'fourier', got kind "
                f"{self.kind!r} and span {self.span}",
                fix="set kind to 'fourier' and span, or leave out both",
            )

    @property
    def pairs(self) -> int:
        return self.width // 2

    @property
    def frequencies(self) -> Float[Tensor, "pairs"]:
        """w_i, in radians per position."""
        indices = torch.arange(self.pairs, dtype=torch.float64)
        if self.span is not None:
            return math.pi * (indices + 1) / self.span
        return torch.pow(self.base, -2 * indices / self.width)

    def vectors(self, length: int) -> Float[Tensor, "T J"]:
        """Return e_0, e_1, … as rows."""
        phases = torch.arange(length, dtype=torch.float64)[:, None] * self.frequencies
        first, second = phases.sin(), phases.cos()
        if self.kind == "fourier":
            first, second = second, first
        return interleave(first, second, self.width)

    def shift_matrix(self, offset: int) -> Float[Tensor, "J J"]:
        """Return A with e_{t - offset} = A e_t for every t."""
        phases = self.frequencies * offset
        sines = phases.sin() if self.kind == "sinusoid" else -phases.sin()
        matrix = torch.zeros(self.width, self.width, dtype=torch.float64)
        even = torch.arange(0, self.width, 2)
        matrix[even, even] = matrix[even + 1, even + 1] = phases.cos()
        matrix[even, even + 1], matrix[even + 1, even] = -sines, sines
        return matrix
