"""Which sines and cosines positions are made of.

sinusoid   e_t[2i] = sin(w_i t),  e_t[2i+1] = cos(w_i t),   w_i = base^(-2i/J)
fourier    e_t[2i] = cos(w_i t),  e_t[2i+1] = sin(w_i t),   w_i = pi (i+1) / span
"""

import math
from dataclasses import dataclass
from typing import Literal

from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Waves:
    """One of the two bases; `span` belongs to Fourier, `base` to the sinusoids."""

    kind: Literal["sinusoid", "fourier"] = "sinusoid"
    width: int
    base: float = 10000.0
    span: int | None = None

    def __post_init__(self) -> None:
        if self.width < 2 or self.width % 2:
            raise UserError(
                f"waves: found width {self.width}, wanted whole pairs of waves",
                fix="make the width of the positions even",
            )
        if not 1 < self.base < math.inf:
            raise UserError(
                f"waves: found base {self.base:g}, wanted more than 1: waves must differ",
                fix="10000 is the usual one",
            )
        if (self.kind == "fourier") != (self.span is not None):
            raise UserError(
                f"waves: found kind {self.kind!r} with span {self.span}, "
                "wanted a span for 'fourier' and for nothing else",
                fix="give the span with 'fourier', or leave it out",
            )

    @property
    def pairs(self) -> int:
        return self.width // 2
