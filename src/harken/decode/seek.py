"""One door to every search: what a `SearchConfig` asks for, for each row of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor

from harken.decode.greedy import decode_greedily
from harken.decode.search import SearchConfig
from harken.decode.step import State, Stepper


@dataclass(frozen=True, slots=True)
class Found:
    """Tokens up to but without `end`, and the log-probability of them with it where it came."""

    tokens: Sequence[int]
    log_probability: float


def seek(
    stepper: Stepper[State],
    prompts: Int[Tensor, "B T"],
    present: Bool[Tensor, "B T"],
    *,
    search: SearchConfig,
    end: int,
    most: int,
    nbest: int = 1,
) -> list[list[Found]]:
    """For each row the `nbest` sequences found, the best first, of at most `most` tokens."""
    decoded = decode_greedily(stepper, prompts, present, end=end, most=most)
    pairs = zip(decoded.tokens, decoded.log_probability.tolist(), strict=True)
    return [[Found(tokens, total)] for tokens, total in pairs]
