"""The sines and cosines of position vectors.

sinusoid   e_t[2i] = sin(w_i t),  e_t[2i+1] = cos(w_i t),   w_i = base^(-2i/J)
fourier    e_t[2i] = cos(w_i t),  e_t[2i+1] = sin(w_i t),   w_i = pi (i+1) / span
"""

import math
from dataclasses import dataclass
from typing import Literal

from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Waves:
    """A sinusoidal basis; `base` belongs to `sinusoid`, `span` to `fourier`."""

    kind: Literal["sinusoid", "fourier"] = "sinusoid"
    width: int
    base: float = 10000.0
    span: int | None = None

    def __post_init__(self) -> None:
        if self.width < 2 or self.width % 2:
            raise UserError(
                f"waves: width must be even and at least 2 (got {self.width})",
                fix="make the width of the positions even",
            )
        if not 1 < self.base < math.inf:
            raise UserError(
                f"waves: base must be above 1 (got {self.base:g})", fix="10000 is the usual base"
            )
        if (self.kind == "fourier") != (self.span is not None):
            raise UserError(
                f"waves: only kind 'fourier' needs a span (got {self.kind!r} with {self.span})",
                fix="give the span with 'fourier', or leave it out",
            )

    @property
    def pairs(self) -> int:
        return self.width // 2
