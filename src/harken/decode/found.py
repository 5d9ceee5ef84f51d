"""What every search gives back for a row, and when rows that are done leave the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens up to but without `end`, and the log-probability of them with it where it came."""

    tokens: Sequence[int]
    log_probability: float


def before(end: int, tokens: list[int]) -> list[int]:
    """What was said before `end`; all of it where `end` was never said."""
    return tokens[: tokens.index(end)] if end in tokens else tokens


def follow(before: Sequence[Found], after: Sequence[Found]) -> list[Found]:
    """Hypotheses of two pieces as those of the whole, rank by rank."""
    return [
        Found([*first.tokens, *second.tokens], first.log_probability + second.log_probability)
        for first, second in zip(before, after, strict=False)
    ]


def leave(alive: Bool[Tensor, "rows"]) -> Int[Tensor, "left"] | None:
    """The rows to go on with; None while so few are done that copying the state costs more.

    A copy has at most 3/4 of the rows of the one before, so all of them together cost no more than
    three of the first state, and no more than a quarter of any step is spent on rows that are done.
    """
    return alive.nonzero()[:, 0] if 4 * int(alive.sum()) <= 3 * len(alive) else None
