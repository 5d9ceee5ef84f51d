"""Split examples into parts."""

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
    """Return (training, held-out) examples; `share` of the distinct keys is held out.

    No side is empty. Keys are ranked by hash: if examples are added, most stay on their side.
    """
    distinct = sorted({key(example) for example in examples})
    if len(distinct) < 2:
        message = f"data.dev: expected at least 2 distinct examples to split, got {len(distinct)}"
        raise UserError(message, fix="add examples, or set data.dev to a file")
    count = min(max(math.floor(share * len(distinct) + 0.5), 1), len(distinct) - 1)
    ranked = sorted(distinct, key=lambda text: hashlib.sha256(f"{seed}\0{text}".encode()).digest())
    held_out = set(ranked[:count])
    return (
        [example for example in examples if key(example) not in held_out],
        [example for example in examples if key(example) in held_out],
    )


def part_sizes(count: int) -> dict[Part, int]:
    """Return the size of each part: a tenth for dev and for test, at least one."""
    aside = max(count // 10, 1)
    return {"train": count - 2 * aside, "dev": aside, "test": aside}
