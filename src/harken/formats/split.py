"""A share of the examples put aside, the same share every time.

Ranking by a hash keeps most of the held-out side the same when examples are added.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from harken.errors import UserError

Example = TypeVar("Example")
Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")


def hold_out(
    examples: Sequence[Example], share: float, seed: int, key: Callable[[Example], str]
) -> tuple[list[Example], list[Example]]:
    """(kept, held out), `share` of the distinct keys held out; neither side is left empty."""
    distinct = sorted({key(example) for example in examples})
    if len(distinct) < 2:
        raise UserError(
            f"found {len(distinct)} distinct example(s), wanted at least 2 to hold some out",
            fix="add examples, or name a file in data.dev",
        )
    count = min(max(math.floor(share * len(distinct) + 0.5), 1), len(distinct) - 1)
    ranked = sorted(distinct, key=lambda text: hashlib.sha256(f"{seed}\0{text}".encode()).digest())
    held = set(ranked[:count])
    return (
        [example for example in examples if key(example) not in held],
        [example for example in examples if key(example) in held],
    )


def part_sizes(count: int) -> dict[Part, int]:
    """A tenth each for dev and test, at least one."""
    aside = max(count // 10, 1)
    return {"train": count - 2 * aside, "dev": aside, "test": aside}
