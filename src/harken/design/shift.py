"""A head that attends T steps back, for any tokens.

    score(i, t) = s e_t . A e_i = s sum over the pairs of cos(w (i - T - t))

A is the rotation by T (`waves.py`), so the score is largest at t = i - T and falls by s times the
gap of the distance from there. A head of key width U holds U/2 pairs. With rotary positions the
layer rotates queries and keys itself, and T is the angle between two constants:

    b_K = (1, 0),  b_Q = s (cos w T, -sin w T)    in every pair

A plan whose tolerance cannot be met is rejected with the largest length that is possible.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design.head import Head
from harken.design.sharpness import max_sharpness, required_sharpness, target_attention
from harken.design.subspaces import Subspaces, projection, shared_subspaces, widen
from harken.design.waves import Waves, choose_pairs, frequencies, gap_table, pair_rows, shift_matrix
from harken.errors import UserError

MAX_LENGTH = 2**16  # of the search for the largest length


def check_sizes(
    kind: str, offset: int, length: int, key_width: int | None, order: MaskKind
) -> None:
    """Reject an offset without a visible key, and a key width without a pair."""
    least = 1 if order == "strictly_causal" else 0
    if not least <= offset < length:
        raise UserError(
            f"{kind}: invalid offset {offset} in texts of {length} "
            f"(expected {least} to {length - 1})",
            fix="a text must be longer than the offset, and the key must be visible",
        )
    if key_width is not None and key_width < 2:
        raise UserError(
            f"{kind}: key width {key_width} has no room for a pair of waves (expected 2 or more)",
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
        """Pairs that fit into the head."""
        room = self.waves.width if self.key_width is None else self.key_width
        return min(self.waves.pairs, room // 2)


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


def sharpen(plan: ShiftPlan) -> ShiftSolution:
    """As sharp as the tolerance requires, or as the precision allows."""
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
    """Whether the tolerance is met at every position, without rounding."""
    return sharpen(plan).predicted >= 1 - plan.tolerance - 1e-12  # one gap may meet it exactly


def largest_length(plan: ShiftPlan, *, most: int = MAX_LENGTH) -> int | None:
    """The longest feasible text, up to `most`; None if there is none.

    The search halves intervals as if longer texts were always harder. With fewer pairs than waves,
    each length has its own pairs, so a longer text may be feasible by chance.
    """
    fits, fails = plan.offset, min(most, plan.waves.span or most) + 1
    most = fails - 1
    trial = plan.offset + 1
    while fails - fits > 1:
        trial = min(max(trial, fits + 1), fails - 1)
        if is_feasible(replace(plan, length=trial)):
            fits, trial = trial, 2 * trial if fails > most else (trial + fails) // 2
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
    reach = largest_length(plan, most=plan.length)
    allows = "no text" if reach is None else f"texts of {reach} at most"
    raise UserError(
        f"shift: texts of {plan.length} are too long: {plan.pair_count} pairs of waves with "
        f"tolerance {plan.tolerance:g} in {str(plan.precision).removeprefix('torch.')} allow "
        f"{allows}",
        fix="increase the key width, the tolerance or the precision",
    )


def shift(plan: ShiftPlan, subspaces: Subspaces | None = None) -> Head:
    """The head for tokens whose `position` part holds these waves.

    It copies the part `content` into `scratch` if there is one.
    """
    subspaces = subspaces or shared_subspaces(plan.waves.width)
    if subspaces.position.width != plan.waves.width:
        raise UserError(
            f"shift: the position part has width {subspaces.position.width} "
            f"(expected {plan.waves.width}, the width of the waves)",
            fix="make the two equal",
        )
    solution = solve(plan)
    return rotation_head(plan.waves, plan.offset, solution.pairs, solution.sharpness, subspaces)


def rotation_head(
    waves: Waves, offset: int, pairs: tuple[int, ...], sharpness: float, subspaces: Subspaces
) -> Head:
    """A head that rotates these pairs by `offset`."""
    rows, width = pair_rows(pairs), subspaces.width
    queries = sharpness * shift_matrix(waves, offset)[rows]
    keys = torch.eye(waves.width, dtype=torch.float64)[rows]
    values = output = None
    if subspaces.scratch.width:
        values = projection(subspaces.content, width)
        output = projection(subspaces.scratch, width).T
    return Head(
        queries=widen(queries, subspaces.position, width),
        keys=widen(keys, subspaces.position, width),
        values=values,
        output=output,
    )


def rotary_shift(plan: ShiftPlan, width: int) -> Head:
    """The head for a layer with rotary positions whose key width is that of the waves.

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
