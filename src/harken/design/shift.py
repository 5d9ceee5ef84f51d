"""A head that attends T steps back, for any tokens.

    score(i, t) = s e_t . A e_i = s sum over the pairs of cos(w (i - T - t))

A is the rotation by T (`waves.py`), so the score is largest at t = i - T and falls by s times the
gap of the distance from there. A head of key width U holds U/2 pairs. With rotary positions the
layer rotates queries and keys itself, and T is the angle between two constants:

    b_K = (1, 0),  b_Q = s (cos w T, -sin w T)    in every pair

The sharpness s follows from the tolerance, with n wrong keys and the smallest gap of a score:

    attention to the target = 1 / (1 + sum over wrong keys of exp(-s gap)) >= 1 - tolerance
    if s = log(n (1 - tolerance) / tolerance) / gap        (sufficient, not necessary)
    limit: s * largest score * epsilon <= log 2

Beyond the limit, rounding of the scores alone could double the attention to wrong keys.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design.head import Head, Subspaces, projection, shared_subspaces, widen
from harken.design.waves import Waves, choose_pairs, frequencies, gap_table, pair_rows, shift_matrix
from harken.errors import UserError

MAX_LENGTH = 2**16  # of the search for the largest length


def check_sizes(
    kind: str, offset: int, length: int, key_width: int | None, order: MaskKind
) -> None:
    """Reject an offset without a visible key, and a key width without a pair."""
    first = 1 if order == "strictly_causal" else 0
    if not first <= offset < length:
        raise UserError(
            f"{kind}: invalid offset {offset} in texts of {length} "
            f"(expected {first} to {length - 1})",
            fix="a text must be longer than the offset, and the key must be visible",
        )
    if key_width is not None and key_width < 2:
        raise UserError(
            f"{kind}: key width {key_width} is too small for a pair of waves (expected 2 or more)",
            fix="choose a key width of 2 at least",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftPlan:
    """Give 1 - tolerance to the key `offset` back, in texts of up to `length`."""

    waves: Waves
    offset: int
    length: int
    tolerance: float = 0.01
    key_width: int | None = None  # U; that of the waves if not given
    order: MaskKind = "causal"
    precision: torch.dtype = torch.float32  # in which the head will run

    def __post_init__(self) -> None:
        check_sizes("shift", self.offset, self.length, self.key_width, self.order)
        if not 0 < self.tolerance < 1:
            raise UserError(
                f"shift: invalid tolerance {self.tolerance} (expected a number between 0 and 1)",
                fix="0.01 allows one percent of the attention on other keys",
            )

    @property
    def pair_count(self) -> int:
        """The number of pairs that fit into the head."""
        width = self.waves.width if self.key_width is None else self.key_width
        return min(self.waves.pairs, width // 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftSolution:
    """Pairs and sharpness of a plan, and the resulting attention."""

    pairs: tuple[int, ...]
    sharpness: float
    gap: float  # between the target score and the best wrong one, at s = 1
    attention: Float[Tensor, "T"]  # to the target key, of the queries offset … length - 1

    @property
    def predicted(self) -> float:
        """Attention at the worst position."""
        return float(self.attention.min())


def required_sharpness(wrong: int, gap: float, tolerance: float) -> float:
    """Return the sharpness for a tolerance if `wrong` keys score lower by at least `gap`."""
    odds = tolerance / (1 - tolerance)
    return max(0.0, math.log(max(wrong, 1) / odds)) / gap


def max_sharpness(largest: float, precision: torch.dtype) -> float:
    """Return the largest sharpness at which scores, `largest` at s = 1, are distinguished."""
    return math.log(2) / (largest * torch.finfo(precision).eps)


def target_attention(
    gaps: Float[Tensor, "S"], sharpness: float, order: MaskKind, offset: int, length: int
) -> Float[Tensor, "T"]:
    """Return attention to the key `offset` back, of the queries offset … length - 1.

    Every query sees an interval of distances from the target key, so running sums are enough.
    """
    around = torch.cat((gaps[1:length].flip(0), gaps[:length]))
    weights = torch.exp(-sharpness * around)
    weights[length - 1] = 0.0  # the target key itself
    running = torch.cat((weights.new_zeros(1), weights.cumsum(dim=0)))
    farthest = torch.arange(length - offset)  # distance of the first key
    if order == "bidirectional":
        nearest = farthest - (length - 1)
    else:
        nearest = torch.full_like(farthest, -offset if order == "causal" else 1 - offset)
    wrong = running[farthest + length] - running[nearest + length - 1]
    return 1 / (1 + wrong)


def sharpen(plan: ShiftPlan) -> ShiftSolution:
    """Solve a plan, as sharp as the tolerance requires or the precision allows."""
    every = gap_table(frequencies(plan.waves), plan.length)
    pairs = choose_pairs(every, plan.pair_count)
    gaps = every[:, list(pairs)].sum(dim=1)
    gap = float(gaps[1:].min()) if plan.length > 1 else 1.0
    sharpness = max_sharpness(float(len(pairs)), plan.precision)
    if gap > 0:  # no sharpness suffices for a gap of 0
        sharpness = min(required_sharpness(plan.length - 1, gap, plan.tolerance), sharpness)
    attention = target_attention(gaps, sharpness, plan.order, plan.offset, plan.length)
    return ShiftSolution(pairs=pairs, sharpness=sharpness, gap=gap, attention=attention)


def is_feasible(plan: ShiftPlan) -> bool:
    """Return whether the tolerance is met at every position, without rounding."""
    return sharpen(plan).predicted >= 1 - plan.tolerance - 1e-12  # one gap may meet it exactly


def largest_length(plan: ShiftPlan, *, max_length: int = MAX_LENGTH) -> int | None:
    """Return the longest feasible text, up to `max_length`; None if there is none.

    The search halves intervals as if longer texts were always harder. With fewer pairs than waves,
    each length has its own pairs, so a longer text may be feasible by chance.
    """
    limit = min(max_length, plan.waves.span or max_length)
    fits, fails, trial = plan.offset, limit + 1, plan.offset + 1
    while fails - fits > 1:
        trial = min(max(trial, fits + 1), fails - 1)
        if is_feasible(replace(plan, length=trial)):
            fits, trial = trial, 2 * trial if fails > limit else (trial + fails) // 2
        else:
            fails, trial = trial, (fits + trial) // 2
    return fits if fits > plan.offset else None


def solve(plan: ShiftPlan) -> ShiftSolution:
    """Sharpen a plan, or raise an error that states the largest feasible length."""
    span = plan.waves.span
    if span is not None and plan.length > span:
        raise UserError(
            f"shift: texts of {plan.length} exceed the span {span} of the Fourier waves: longer "
            "offsets are ambiguous",
            fix="make the span as long as the text",
        )
    if is_feasible(plan):
        return sharpen(plan)
    reach = largest_length(plan, max_length=plan.length)
    allows = "no text" if reach is None else f"texts of {reach} at most"
    raise UserError(
        f"shift: texts of {plan.length} are too long: {plan.pair_count} pairs of waves with "
        f"tolerance {plan.tolerance:g} in {str(plan.precision).removeprefix('torch.')} allow "
        f"{allows}",
        fix="increase the key width, the tolerance or the precision",
    )


def shift(plan: ShiftPlan, subspaces: Subspaces | None = None) -> Head:
    """Return the head for tokens whose `position` part holds these waves.

    It copies the part `content` into `scratch` if there is one.
    """
    subspaces = subspaces or shared_subspaces(plan.waves.width)
    if len(subspaces.position) != plan.waves.width:
        raise UserError(
            f"shift: the position part has width {len(subspaces.position)} "
            f"(expected {plan.waves.width}, the width of the waves)",
            fix="make the two equal",
        )
    solution = solve(plan)
    return rotation_head(plan.waves, plan.offset, solution.pairs, solution.sharpness, subspaces)


def rotation_head(
    waves: Waves, offset: int, pairs: tuple[int, ...], sharpness: float, subspaces: Subspaces
) -> Head:
    """Return a head that rotates these pairs by `offset`."""
    rows, width = pair_rows(pairs), subspaces.width
    keys = torch.eye(waves.width, dtype=torch.float64)[rows]
    has_output = bool(subspaces.scratch)
    return Head(
        queries=widen(sharpness * shift_matrix(waves, offset)[rows], subspaces.position, width),
        keys=widen(keys, subspaces.position, width),
        values=projection(subspaces.content, width) if has_output else None,
        output=projection(subspaces.scratch, width).T if has_output else None,
    )


def rotary_shift(plan: ShiftPlan, width: int) -> Head:
    """Return the head for a layer with rotary positions whose key width is that of the waves.

    The layer holds every pair; pairs that are not used are zero.
    """
    solution, half = solve(plan), plan.waves.pairs
    angles = frequencies(plan.waves)[list(solution.pairs)] * plan.offset
    query, key = torch.zeros(2, 2 * half, dtype=torch.float64)
    first = torch.tensor(solution.pairs)  # a pair is an element and the one half a key further on
    query[first] = solution.sharpness * angles.cos()
    query[first + half] = -solution.sharpness * angles.sin()
    key[first] = 1.0
    zeros = torch.zeros(2 * half, width, dtype=torch.float64)
    return Head(queries=zeros, keys=zeros, query_offset=query, key_offset=key)
