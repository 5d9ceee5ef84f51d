"""Shift head: attends to the token `offset` positions before the query.

    score(i, t) = s e_t . A e_i = s sum over the pairs of cos(w (i - offset - t))
    gap(d)      = sum over the pairs of 1 - cos(w d)

Here e_t is the position vector of t, i is the query, t is the key, and w is the frequency of a
(sin, cos) pair. A rotates each pair by `offset` positions (`attention/sinusoids.py`). The score is
largest at t = i - offset, and lower by s gap(d) at distance d from there. A head of key width U
holds U/2 pairs. With rotary positions, the layer rotates queries and keys, and the head has
constant biases:

    b_K = (1, 0),  b_Q = s (cos(w offset), -sin(w offset))    in every pair

The sharpness s follows from the tolerance, the number n of wrong keys and their smallest gap:

    attention to the target = 1 / (1 + sum over wrong keys of exp(-s gap)) >= 1 - tolerance
    if s = log(n (1 - tolerance) / tolerance) / gap        (sufficient, not necessary)
    limit: s * (largest score at s = 1) * machine epsilon <= log 2

Above this limit, rounding of the scores alone could double the attention to wrong keys.
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

MAX_LENGTH = 2**16  # limit of `largest_length`


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionalPlan:
    """Base class of plans of heads that attend by position in texts of up to `length` tokens."""

    kind: ClassVar[str]
    basis: Sinusoids  # sinusoids of the positions
    offset: int
    length: int
    key_width: int | None = None  # U; by default the width of the basis
    mask_kind: MaskKind = "causal"

    def __post_init__(self) -> None:
        if not self.min_offset <= self.offset < self.length:
            raise UserError(
                f"{self.kind}: invalid offset {self.offset} in texts of {self.length} tokens "
                f"(expected {self.min_offset} to {self.length - 1})",
                fix="choose an offset below the length; with a strictly causal mask, at least 1",
            )
        if self.key_width is not None and self.key_width < 2:
            raise UserError(
                f"{self.kind}: key width {self.key_width} is too small for a sine and a cosine",
                fix="choose a key width of at least 2",
            )

    @property
    def min_offset(self) -> int:
        """The smallest allowed offset; heads attend to the query's token or to earlier ones."""
        return 1 if self.mask_kind == "strictly_causal" else 0

    @property
    def pair_count(self) -> int:
        """The number of (sin, cos) pairs that fit into the head."""
        return min(self.basis.pairs, (self.key_width or self.basis.width) // 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftPlan(PositionalPlan):
    """Attend to the key `offset` tokens back, with a weight of at least 1 - tolerance."""

    kind: ClassVar[str] = "shift"
    tolerance: float = 0.01
    precision: torch.dtype = torch.float32  # dtype of the scores when the head is used

    def __post_init__(self) -> None:
        PositionalPlan.__post_init__(self)
        if not 0 < self.tolerance < 1:
            raise UserError(
                f"shift: invalid tolerance {self.tolerance} (expected a number between 0 and 1)",
                fix="use for example 0.01, which allows 1 % of the attention on other keys",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftSolution:
    """The pairs and the sharpness for a plan, and the resulting attention."""

    plan: ShiftPlan
    pairs: tuple[int, ...]
    sharpness: float
    gaps: Float[Tensor, "S"]  # gap(d) for each distance d from the target key

    @property
    def gap(self) -> float:
        """The gap between the target score and the best wrong score, at s = 1."""
        return float(self.gaps[1:].min()) if len(self.gaps) > 1 else 1.0

    @property
    def is_feasible(self) -> bool:
        """Whether the tolerance is met at every query, in exact arithmetic."""
        # The sharpness meets the tolerance with equality if all gaps are equal.
        return self.predicted >= 1 - self.plan.tolerance - 1e-12

    @property
    def predicted(self) -> float:
        """The attention to the target key at the worst query."""
        plan, length = self.plan, self.plan.length
        # The gaps of the signed distances d = i - offset - t, from 1 - length to length - 1.
        gaps = torch.cat((self.gaps[1:].flip(0), self.gaps))
        weights = torch.exp(-self.sharpness * gaps)
        weights[length - 1] = 0.0  # the target key itself
        # A query sees an interval of distances, so a sum over them is a difference of two sums.
        cumulative = torch.cat((weights.new_zeros(1), weights.cumsum(dim=0)))
        # Distances of the first and of the last visible key, for each query with a target key.
        first = torch.arange(length - plan.offset)
        if plan.mask_kind == "bidirectional":
            last = first - (length - 1)
        else:
            last = torch.full_like(first, plan.min_offset - plan.offset)
        wrong = cumulative[first + length] - cumulative[last + length - 1]
        return float((1 / (1 + wrong)).min())


def score_gaps(
    frequencies: Float[Tensor, "pairs"], distances: Real[Tensor, "S"]
) -> Float[Tensor, "S pairs"]:
    """Return 1 - cos(w d) for all distances d and frequencies w."""
    angles = distances[:, None].double() * frequencies
    return 2 * (angles / 2).sin().square()  # accurate for low frequencies, unlike 1 - cos


def choose_pairs(gaps: Float[Tensor, "S pairs"], count: int) -> tuple[int, ...]:
    """Greedily choose `count` pairs, each of which increases the smallest gap most."""
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


def required_sharpness(*, wrong_keys: int, gap: float, tolerance: float) -> float:
    """Return s for a tolerance if the scores of the wrong keys are lower by at least s * gap."""
    odds = tolerance / (1 - tolerance)
    return max(0.0, math.log(max(wrong_keys, 1) / odds)) / gap


def max_sharpness(largest_score: float, precision: torch.dtype) -> float:
    """Return the limit of the sharpness, given the largest score at s = 1."""
    return math.log(2) / (largest_score * torch.finfo(precision).eps)


def choose_sharpness(plan: ShiftPlan) -> ShiftSolution:
    """Choose the sharpness that the tolerance requires, or the largest that precision allows."""
    gaps = score_gaps(plan.basis.frequencies, torch.arange(plan.length))
    pairs = choose_pairs(gaps, plan.pair_count)
    # At the target key, every pair contributes a cosine of 1 to the score.
    sharpness = max_sharpness(float(len(pairs)), plan.precision)
    total = gaps[:, list(pairs)].sum(dim=1)
    solution = ShiftSolution(plan=plan, pairs=pairs, sharpness=sharpness, gaps=total)
    if solution.gap <= 0:  # no sharpness suffices
        return solution
    required = required_sharpness(
        wrong_keys=plan.length - 1, gap=solution.gap, tolerance=plan.tolerance
    )
    return replace(solution, sharpness=min(required, sharpness))


def largest_length(plan: ShiftPlan, *, max_length: int = MAX_LENGTH) -> int | None:
    """Return the length of the longest feasible text, up to `max_length`; None if there is none.

    The search is a bisection, which assumes that longer texts are harder. The assumption may be
    wrong with fewer pairs than the basis has, since each length then has its own pairs.
    """
    limit = min(max_length, plan.basis.span or max_length)
    feasible, infeasible, trial = plan.offset, limit + 1, plan.offset + 1
    while infeasible - feasible > 1:
        trial = min(max(trial, feasible + 1), infeasible - 1)
        if choose_sharpness(replace(plan, length=trial)).is_feasible:
            feasible = trial
            trial = 2 * trial if infeasible > limit else (trial + infeasible) // 2
        else:
            infeasible, trial = trial, (feasible + trial) // 2
    return feasible if feasible > plan.offset else None


def solve_shift(plan: ShiftPlan) -> ShiftSolution:
    """Return the solution of a plan; raise an error with the largest length if it is infeasible."""
    span = plan.basis.span
    if span is not None and plan.length > span:
        raise UserError(
            f"shift: texts of {plan.length} tokens are longer than the span of the Fourier basis "
            f"(expected at most {span}, since longer offsets are ambiguous)",
            fix="increase the span to the length of the texts",
        )
    solution = choose_sharpness(plan)
    if solution.is_feasible:
        return solution
    largest = largest_length(plan, max_length=plan.length)
    allowed = "no text" if largest is None else f"texts of at most {largest} tokens"
    raise UserError(
        f"shift: texts of {plan.length} tokens are too long: {plan.pair_count} frequencies with "
        f"tolerance {plan.tolerance:g} in {str(plan.precision).removeprefix('torch.')} allow "
        f"{allowed}",
        fix="increase the key width, the tolerance or the precision",
    )


def shift_head(plan: ShiftPlan, subspaces: Subspaces | None = None) -> Head:
    """Return the head for tokens whose `position` subspace is a vector of the basis.

    It copies `content` to `scratch` if there is a scratch subspace.
    """
    subspaces = subspaces or shared_subspaces(plan.basis.width)
    assert len(subspaces.position) == plan.basis.width, "the basis does not fit the subspace"
    solution = solve_shift(plan)
    return rotation_head(plan.basis, plan.offset, solution.pairs, solution.sharpness, subspaces)


def rotation_head(
    basis: Sinusoids,
    offset: int,
    pairs: tuple[int, ...],
    sharpness: float,
    subspaces: Subspaces,
) -> Head:
    """Return a head that rotates these pairs by `offset`."""
    rows = (2 * torch.tensor(pairs)[:, None] + torch.arange(2)).flatten()  # both rows of each pair
    keys = torch.eye(basis.width, dtype=torch.float64)[rows]
    position, width = subspaces.position, subspaces.width
    has_output = bool(subspaces.scratch)
    return Head(
        queries=pad_columns(sharpness * basis.shift_matrix(offset)[rows], position, width),
        keys=pad_columns(keys, position, width),
        values=projection(subspaces.content, width) if has_output else None,
        output=projection(subspaces.scratch, width).T if has_output else None,
    )


def rotary_shift_head(plan: ShiftPlan, width: int) -> Head:
    """Return the head for a layer with rotary positions whose key width is that of the basis.

    The key contains all pairs of the basis; unused pairs are zero.
    """
    solution, half = solve_shift(plan), plan.basis.pairs
    angles = plan.basis.frequencies[list(solution.pairs)] * plan.offset
    query, key = torch.zeros(2, 2 * half, dtype=torch.float64)
    first = torch.tensor(solution.pairs)  # a pair consists of the elements i and i + half
    query[first] = solution.sharpness * angles.cos()
    query[first + half] = -solution.sharpness * angles.sin()
    key[first] = 1.0
    zeros = torch.zeros(2 * half, width, dtype=torch.float64)
    return Head(queries=zeros, keys=zeros, query_offset=query, key_offset=key)
