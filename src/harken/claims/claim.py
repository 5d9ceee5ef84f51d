"""A statement of the sources, what it predicts, what was measured, and the verdict.

    agrees       |measured - predicted| <= tolerance
    holds        every case agrees
    narrower     some case as the source states it disagrees, and every narrower one agrees
    not          otherwise

The measured side comes from the library's own parts, the predicted side from `formulas.py` or from
arithmetic beside it, so that the two can disagree. Each claim records the verdict that is expected:
another one means that the library or the claim has broken.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harken.errors import UserError

Verdict = Literal["holds", "holds under a narrower assumption", "does not hold"]
HOLDS: Verdict = "holds"
NARROWER: Verdict = "holds under a narrower assumption"
FAILS: Verdict = "does not hold"

Array = NDArray[np.float64]

EXACT = 1e-9  # of float64 numbers near one, added up in another order
SINGLE = 1e-4  # of positions, whose angles the library computes in float32


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a person may choose: d of positions and keys, and the seed of all that is drawn."""

    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.width < 8 or self.width % 4:
            raise UserError(
                f"claims: found width {self.width}, wanted a multiple of 4, at least 8",
                fix="64 is the default",
            )
        if not 0 <= self.seed < 2**63:
            raise UserError(
                f"claims: found seed {self.seed}, wanted 0 or more, below 2^63",
                fix="0 is the default",
            )

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One number predicted and measured; `stated` where the source says it without more."""

    what: str
    predicted: float
    measured: float
    tolerance: float
    stated: bool = True

    @property
    def agrees(self) -> bool:
        return abs(self.measured - self.predicted) <= self.tolerance  # False for what is no number


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One statement in our words; `remark` says where it holds, or where a source slips."""

    id: str
    source: str
    statement: str
    formula: str
    assumption: str
    check: Callable[[Setting], Sequence[Case]]
    expected: Verdict = HOLDS
    remark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A claim with its cases."""

    claim: Claim
    cases: tuple[Case, ...]

    @property
    def verdict(self) -> Verdict:
        narrower = [case.agrees for case in self.cases if not case.stated]
        if all(case.agrees for case in self.cases):
            return HOLDS
        return NARROWER if narrower and all(narrower) else FAILS

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.claim.expected


def judge(claim: Claim, setting: Setting) -> Judged:
    """Carry a claim out."""
    return Judged(claim=claim, cases=tuple(claim.check(setting)))


def worst(
    what: str,
    predicted: Array,
    measured: Tensor,
    tolerance: float = EXACT,
    *,
    stated: bool = True,
) -> Case:
    """The element of two arrays in which they differ most; arrays of two shapes never agree."""
    found = measured.detach().double().numpy()
    if found.shape != predicted.shape:
        shapes = f"{what}: shape {found.shape} in place of {predicted.shape}"
        return Case(
            what=shapes,
            predicted=0.0,
            measured=math.nan,
            tolerance=tolerance,
            stated=stated,
        )
    at = np.unravel_index(np.abs(found - predicted).argmax(), predicted.shape)
    return Case(
        what=what,
        predicted=float(predicted[at]),
        measured=float(found[at]),
        tolerance=tolerance,
        stated=stated,
    )
