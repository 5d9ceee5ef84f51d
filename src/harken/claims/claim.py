"""A statement of a course document, its predicted and measured values, and the verdict.

A claim has cases, which agree if |measured - predicted| <= tolerance. Its verdict is

    holds                               all cases agree
    holds under a narrower assumption   a stated case disagrees, but there are cases that add an
                                        assumption, and all of them agree
    does not hold                       otherwise

Measured values come from the library's layers, predicted values from `formulas.py` or from
arithmetic in the check itself.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harken.errors import UserError

Verdict = Literal["holds", "holds under a narrower assumption", "does not hold"]
HOLDS: Verdict = "holds"
HOLDS_NARROWER: Verdict = "holds under a narrower assumption"
FAILS: Verdict = "does not hold"

Array = NDArray[np.float64]

ATOL = 1e-9  # for float64 numbers near 1
ATOL32 = 1e-4  # for positions, whose angles are computed in float32


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The width d of positions and keys, and the seed of all random numbers."""

    width: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.width < 8 or self.width % 4:
            raise UserError(
                f"claims: invalid width {self.width} (expected a multiple of 4, at least 8)",
                fix="leave out the width to use 64",
            )
        if not 0 <= self.seed < 2**63:
            raise UserError(
                f"claims: invalid seed {self.seed} (expected 0 or more, below 2^63)",
                fix="leave out the seed to use 0",
            )

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True, slots=True)
class Case:
    """A predicted and a measured number.

    `stated` is False if the case adds an assumption to those of the statement.
    """

    name: str
    predicted: float
    measured: float
    tolerance: float = 0.0
    stated: bool = True

    @property
    def agrees(self) -> bool:
        return abs(self.measured - self.predicted) <= self.tolerance  # False for NaN


Check = Callable[[Setting], Sequence[Case]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement; as a decorator, it registers the function that computes its cases."""

    id: str
    source: str  # institution, course, document and part
    statement: str
    formula: str
    assumption: str = "none"
    expected: Verdict = HOLDS  # any other verdict means that the library or the claim is broken
    remark: str = ""  # where the statement holds, or an error of the document
    check: Check | None = None

    def __call__(self, check: Check) -> Check:
        _REGISTRY[self.id] = replace(self, check=check)
        return check

    def evaluate(self, setting: Setting) -> "ClaimResult":
        assert self.check is not None
        return ClaimResult(self, tuple(self.check(setting)))


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim with its cases."""

    claim: Claim
    cases: tuple[Case, ...]

    @property
    def verdict(self) -> Verdict:
        narrower = [case.agrees for case in self.cases if not case.stated]
        if all(case.agrees for case in self.cases):
            return HOLDS
        return HOLDS_NARROWER if narrower and all(narrower) else FAILS

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.claim.expected


DOCUMENTS = (
    "ece537_problem_set9",
    "lecture29",
    "nlp_assignment5",
    "ttic31230_attention",
    "ttic31230_transformer",
)
_REGISTRY: dict[str, Claim] = {}


def select_claims(ids: Sequence[str] = ()) -> tuple[Claim, ...]:
    """Return the claims with these ids (upper or lower case), or all claims, ordered by id."""
    for document in DOCUMENTS:
        import_module(f"harken.claims.{document}")
    known = sorted(_REGISTRY, key=lambda name: (name[0], int(name[1:])))
    requested = [name.upper() for name in ids]
    for name in requested:
        if name not in known:
            raise UserError(
                f"claims: unknown id {name!r} (expected one of {', '.join(known)})",
                fix="leave out the ids to run all claims",
            )
    return tuple(_REGISTRY[name] for name in known if not requested or name in requested)


def compare_arrays(
    name: str, predicted: Array, measured: Tensor, tolerance: float = ATOL, stated: bool = True
) -> Case:
    """Return the case of the element that differs most; different shapes never agree."""
    values = measured.detach().double().numpy()
    if values.shape != predicted.shape:
        name = f"{name}: expected shape {predicted.shape}, got {values.shape}"
        return Case(name, 0.0, math.nan, tolerance, stated)
    index = np.unravel_index(np.abs(values - predicted).argmax(), predicted.shape)
    return Case(name, float(predicted[index]), float(values[index]), tolerance, stated)
