"""Parts of a token vector: content, position, and scratch for what heads write.

    concatenated   [content | position | scratch]    as with `place = "concat"`
    shared         positions are added to contents, and both have the whole width

A designed head is exact if its parts are disjoint: contents in the position part are noise to a
head that reads positions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from harken.errors import UserError


@dataclass(frozen=True, slots=True)
class Part:
    """Elements `start` … `start + width - 1` of a token."""

    start: int
    width: int

    @property
    def stop(self) -> int:
        return self.start + self.width


@dataclass(frozen=True, kw_only=True, slots=True)
class Subspaces:
    """The parts of a token of this width."""

    width: int
    content: Part
    position: Part
    scratch: Part = Part(0, 0)

    def __post_init__(self) -> None:
        for name in ("content", "position", "scratch"):
            part: Part = getattr(self, name)
            if part.start < 0 or part.width < 0 or part.stop > self.width:
                raise UserError(
                    f"subspace {name!r}: {part.start} to {part.stop} is outside the token "
                    f"(expected 0 to {self.width})",
                    fix="make the model wider or the part narrower",
                )


def concatenated_subspaces(content: int, position: int, scratch: int = 0) -> Subspaces:
    """One part after the other."""
    return Subspaces(
        width=content + position + scratch,
        content=Part(0, content),
        position=Part(content, position),
        scratch=Part(content + position, scratch),
    )


def shared_subspaces(width: int) -> Subspaces:
    """Positions added to contents."""
    return Subspaces(width=width, content=Part(0, width), position=Part(0, width))


def widen(matrix: Float[Tensor, "rows columns"], part: Part, width: int) -> Tensor:
    """A matrix for one part as a matrix for whole tokens, with zeros elsewhere."""
    wide = matrix.new_zeros(matrix.shape[0], width)
    wide[:, part.start : part.stop] = matrix
    return wide


def projection(part: Part, width: int) -> Float[Tensor, "I J"]:
    """The matrix that extracts a part of a token; its transpose inserts the part."""
    return widen(torch.eye(part.width, dtype=torch.float64), part, width)
