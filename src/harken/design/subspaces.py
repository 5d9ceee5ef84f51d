"""Named parts of the residual width: where positions, contents and what heads write live.

A head by design reads some numbers of a token and writes others. It keeps its promise where these
are its own: a content inside the part of the positions is noise to a head that reads places.

    side by side   [content | position | scratch]    as with `place = "concat"`
    shared         positions are added to contents, and both have the whole width
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from harken.errors import UserError


@dataclass(frozen=True, slots=True)
class Part:
    """Coordinates `start` … `start + width - 1` of a token."""

    start: int
    width: int

    @property
    def stop(self) -> int:
        return self.start + self.width

    def touches(self, other: "Part") -> bool:
        return max(self.start, other.start) < min(self.stop, other.stop)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subspaces:
    """Who lives where in a token of this width."""

    width: int
    content: Part
    position: Part
    scratch: Part = Part(0, 0)

    def __post_init__(self) -> None:
        for name in ("content", "position", "scratch"):
            part: Part = getattr(self, name)
            if part.start < 0 or part.width < 0 or part.stop > self.width:
                raise UserError(
                    f"subspace {name!r}: found {part.start} to {part.stop}, "
                    f"wanted it inside the width {self.width}",
                    fix="make the model wider or the part narrower",
                )

    @property
    def apart(self) -> bool:
        """Whether no part touches another."""
        parts = (self.content, self.position, self.scratch)
        return not any(
            one.touches(other) for i, one in enumerate(parts) for other in parts[i + 1 :]
        )


def side_by_side(content: int, position: int, scratch: int = 0) -> Subspaces:
    """One part after the other."""
    return Subspaces(
        width=content + position + scratch,
        content=Part(0, content),
        position=Part(content, position),
        scratch=Part(content + position, scratch),
    )


def shared(width: int) -> Subspaces:
    """Positions added to contents."""
    return Subspaces(width=width, content=Part(0, width), position=Part(0, width))


def reading(matrix: Float[Tensor, "rows columns"], part: Part, width: int) -> Tensor:
    """A matrix for one part of the tokens as a matrix for whole tokens: zeros elsewhere."""
    wide = matrix.new_zeros(matrix.shape[0], width)
    wide[:, part.start : part.stop] = matrix
    return wide


def taking(part: Part, width: int) -> Float[Tensor, "I J"]:
    """The matrix that takes a part out of a token; transposed, it puts it there."""
    return reading(torch.eye(part.width, dtype=torch.float64), part, width)
