"""A head that attends T steps back, for any tokens.

    score(i, t) = s e_t . A e_i = s sum over the pairs of cos(w (i - T - t))
    gap(d)      = sum over the pairs of 1 - cos(w d)

A is the rotation by T (`attention/sinusoids.py`), so the score is largest at t = i - T and falls by
s gap(d) at the distance d from there. A head of key width U holds U/2 pairs. With rotary positions
the layer rotates queries and keys itself, and T is the angle between two constants:

    b_K = (1, 0),  b_Q = s (cos w T, -sin w T)    in every pair

The sharpness s follows from the tolerance, with n wrong keys and their smallest gap:

    attention to the target = 1 / (1 + sum over wrong keys of exp(-s gap)) >= 1 - tolerance
    if s = log(n (1 - tolerance) / tolerance) / gap        (sufficient, not necessary)
    limit: s * largest score * epsilon <= log 2

Beyond the limit, rounding of the scores alone could double the attention to wrong keys.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Real
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.attention.sinusoids import Sinusoids
from harken.design.head import Head, Subspaces, pad_columns, projection, shared_subspaces
from harken.errors import UserError

MAX_LENGTH = 2**16  # of the search for the largest length


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionalPlan:
    """Base of the plans of heads that attend `offset` steps back in texts of up to `length`."""

    kind: ClassVar[str]
    basis: Sinusoids  # of the position vectors
    offset: int
    length: int
    key_width: int | None = None  # U; by default the width of the basis
    mask_kind: MaskKind = "causal"

    def __post_init__(self) -> None:
        if not self.min_offset <= self.offset < self.length:
            raise UserError(
                f"{self.kind}: invalid offset {self.offset} in texts of {self.length} "
                f"(expected {self.min_offset} to {self.length - 1})",
                fix="a text must be longer than the offset, and the key must be visible",
            )
        if self.key_width is not None and self.key_width < 2:
            raise UserError(
                f"{self.kind}: key width {self.key_width} is too small for a sine and a cosine",
                fix="choose a key width of 2 at least",
            )

    @property
    def min_offset(self) -> int:
        """The smallest offset that a causal mask shows."""
        return 1 if self.mask_kind == "strictly_causal" else 0

    @property
    def pair_count(self) -> int:
        """The number of pairs that fit into the head."""
        return min(self.basis.pairs, (self.key_width or self.basis.width) // 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftPlan(PositionalPlan):
    """Give 1 - tolerance of the attention to the key `offset` steps back."""

    kind: ClassVar[str] = "shift"
    tolerance: float = 0.01
    precision: torch.dtype = torch.float32  # in which the head will run

    def __post_init__(self) -> None:
        PositionalPlan.__post_init__(self)
        if not 0 < self.tolerance < 1:
            raise UserError(
                f"shift: invalid tolerance {self.tolerance} (expected a number between 0 and 1)",
                fix="0.01 allows one percent of the attention on other keys",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftSolution:
    """Pairs and sharpness of a plan, and the resulting attention."""

    plan: ShiftPlan
    pairs: tuple[int, ...]
    sharpness: float
    gaps: Float[Tensor, "S"]  # of the score at s = 1, by the distance from the target key

    @property
    def gap(self) -> float:
        """The gap between the target score and the best wrong one, at s = 1."""
        return float(self.gaps[1:].min()) if len(self.gaps) > 1 else 1.0

    @property
    def is_feasible(self) -> bool:
        """Whether the tolerance is met at every query, without rounding."""
        return self.predicted >= 1 - self.plan.tolerance - 1e-12  # one gap may meet it exactly

    @property
    def predicted(self) -> float:
        """The attention to the target key at the worst query.

        Every query sees an interval of distances from its target, so running sums are enough.
        """
        plan, length = self.plan, self.plan.length
        around = torch.cat((self.gaps[1:].flip(0), self.gaps))
        weights = torch.exp(-self.sharpness * around)
        weights[length - 1] = 0.0  # the target key itself
        running = torch.cat((weights.new_zeros(1), weights.cumsum(dim=0)))
        farthest = torch.arange(length - plan.offset)  # distance of the first key
        if plan.mask_kind == "bidirectional":
            nearest = farthest - (length - 1)
        else:
            nearest = torch.full_like(farthest, plan.min_offset - plan.offset)
        wrong = running[farthest + length] - running[nearest + length - 1]
        return float((1 / (1 + wrong)).min())


def score_gaps(
    frequencies: Float[Tensor, "pairs"], distances: Real[Tensor, "S"]
) -> Float[Tensor, "S pairs"]:
    """Return 1 - cos(w d) for all distances d and frequencies w."""
    angles = distances[:, None].double() * frequencies
    return 2 * (angles / 2).sin().square()  # 1 - cos would cancel for low frequencies


def choose_pairs(gaps: Float[Tensor, "S pairs"], count: int) -> tuple[int, ...]:
    """Greedily choose the pairs that increase the smallest gap most; no pair decreases a gap."""
    wrong, chosen = gaps[1:], list[int]()
    if count >= gaps.shape[1]:
        return tuple(range(gaps.shape[1]))
    if not len(wrong):
        return tuple(range(count))
    total = torch.zeros(len(wrong), 1, dtype=torch.float64)
    for _ in range(count):
        smallest = (total + wrong).amin(dim=0)
        smallest[chosen] = -1.0
        chosen.append(int(smallest.argmax()))
        total = total + wrong[:, chosen[-1:]]
    return tuple(sorted(chosen))


def required_sharpness(wrong: int, gap: float, tolerance: float) -> float:
    """Return the sharpness for a tolerance if `wrong` keys score lower by at least `gap`."""
    odds = tolerance / (1 - tolerance)
    return max(0.0, math.log(max(wrong, 1) / odds)) / gap


def max_sharpness(largest: float, precision: torch.dtype) -> float:
    """Return the largest sharpness at which scores, `largest` at s = 1, are distinguished."""
    return math.log(2) / (largest * torch.finfo(precision).eps)


def sharpen(plan: ShiftPlan) -> ShiftSolution:
    """Choose the sharpness that the tolerance requires, or the largest that precision allows."""
    gaps = score_gaps(plan.basis.frequencies, torch.arange(plan.length))
    pairs = choose_pairs(gaps, plan.pair_count)
    sharpness = max_sharpness(float(len(pairs)), plan.precision)
    total = gaps[:, list(pairs)].sum(dim=1)
    solution = ShiftSolution(plan=plan, pairs=pairs, sharpness=sharpness, gaps=total)
    if solution.gap <= 0:  # no sharpness suffices
        return solution
    required = required_sharpness(plan.length - 1, solution.gap, plan.tolerance)
    return replace(solution, sharpness=min(required, sharpness))


def largest_length(plan: ShiftPlan, *, max_length: int = MAX_LENGTH) -> int | None:
    """Return the longest feasible text, up to `max_length`; None if there is none.

    The search halves intervals as if longer texts were always harder. With fewer pairs than the
    basis has, each length has its own pairs, so a longer text may be feasible by chance.
    """
    limit = min(max_length, plan.basis.span or max_length)
    fits, fails, trial = plan.offset, limit + 1, plan.offset + 1
    while fails - fits > 1:
        trial = min(max(trial, fits + 1), fails - 1)
        if sharpen(replace(plan, length=trial)).is_feasible:
            fits, trial = trial, 2 * trial if fails > limit else (trial + fails) // 2
        else:
            fails, trial = trial, (fits + trial) // 2
    return fits if fits > plan.offset else None


def solve(plan: ShiftPlan) -> ShiftSolution:
    """Sharpen a plan, or raise an error that states the largest feasible length."""
    span = plan.basis.span
    if span is not None and plan.length > span:
        raise UserError(
            f"shift: texts of {plan.length} exceed the span {span} of the Fourier basis: longer "
            "offsets are ambiguous",
            fix="make the span as long as the text",
        )
    solution = sharpen(plan)
    if solution.is_feasible:
        return solution
    reach = largest_length(plan, max_length=plan.length)
    allowed = "no text" if reach is None else f"texts of {reach} at most"
    raise UserError(
        f"shift: texts of {plan.length} are too long: {plan.pair_count} frequencies with "
        f"tolerance {plan.tolerance:g} in {str(plan.precision).removeprefix('torch.')} allow "
        f"{allowed}",
        fix="increase the key width, the tolerance or the precision",
    )


def shift(plan: ShiftPlan, subspaces: Subspaces | None = None) -> Head:
    """Return the head for tokens whose `position` part is a vector of the basis.

    It copies the part `content` into `scratch` if there is one.
    """
    subspaces = subspaces or shared_subspaces(plan.basis.width)
    assert len(subspaces.position) == plan.basis.width, "the basis fills the position part"
    solution = solve(plan)
    return rotation_head(plan.basis, plan.offset, solution.pairs, solution.sharpness, subspaces)


def rotation_head(
    basis: Sinusoids,
    offset: int,
    pairs: tuple[int, ...],
    sharpness: float,
    subspaces: Subspaces,
) -> Head:
    """Return a head that rotates these pairs by `offset`."""
    rows = (2 * torch.tensor(pairs)[:, None] + torch.arange(2)).flatten()
    keys = torch.eye(basis.width, dtype=torch.float64)[rows]
    part, width = subspaces.position, subspaces.width
    has_output = bool(subspaces.scratch)
    return Head(
        queries=pad_columns(sharpness * basis.shift_matrix(offset)[rows], part, width),
        keys=pad_columns(keys, part, width),
        values=projection(subspaces.content, width) if has_output else None,
        output=projection(subspaces.scratch, width).T if has_output else None,
    )


def rotary_shift(plan: ShiftPlan, width: int) -> Head:
    """Return the head for a layer with rotary positions whose key width is that of the basis.

    The layer holds every pair; pairs that are not used are zero.
    """
    solution, half = solve(plan), plan.basis.pairs
    angles = plan.basis.frequencies[list(solution.pairs)] * plan.offset
    query, key = torch.zeros(2, 2 * half, dtype=torch.float64)
    first = torch.tensor(solution.pairs)  # a pair is an element and the one half a key further on
    query[first] = solution.sharpness * angles.cos()
    query[first + half] = -solution.sharpness * angles.sin()
    key[first] = 1.0
    zeros = torch.zeros(2 * half, width, dtype=torch.float64)
    return Head(queries=zeros, keys=zeros, query_offset=query, key_offset=key)
