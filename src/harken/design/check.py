"""A promise against the attention itself: the worst query of every length.

    measured = min over queries of (sum over right keys of attention)

A query without a right key promises nothing and is left out. Predicted is what the formula of the
head says; measured is what softmax gives on tokens. What each head promises is in `promises.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.attention.relative import Rotation
from harken.design.head import Head, attention, carry
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Specification:
    """What heads, one a layer, promise of texts of a length."""

    tokens: Callable[[int], Float[Tensor, "T J"]]
    right: Callable[[int], Bool[Tensor, "T S"]]
    predicted: Callable[[int], float]  # attention to the right keys at the worst query, at least
    order: MaskKind = "causal"
    rotation: Callable[[int], Rotation] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """One length."""

    length: int
    predicted: float
    measured: float
    query: int  # the worst


def attended(heads: Sequence[Head], tokens: Tensor, promise: Specification) -> Tensor:
    """The attention of the last head, behind what those before it wrote."""
    rotation = None if promise.rotation is None else promise.rotation(len(tokens))
    return attention(heads[-1], carry(heads[:-1], tokens, promise.order), promise.order, rotation)


def check(
    heads: Sequence[Head], promise: Specification, lengths: Sequence[int]
) -> tuple[Checked, ...]:
    """Predicted and measured for each length."""
    found = []
    for length in lengths:
        right = promise.right(length)
        to_right = attended(heads, promise.tokens(length), promise).masked_fill(~right, 0).sum(-1)
        asked = to_right.masked_fill(~right.any(dim=-1), float("inf"))
        if not asked.isfinite().any():
            raise UserError(
                f"check: found texts of {length} in which no query has a right key, wanted one",
                fix="make the texts longer",
            )
        found.append(
            Checked(
                length=length,
                predicted=promise.predicted(length),
                measured=float(asked.min()),
                query=int(asked.argmin()),
            )
        )
    return tuple(found)
