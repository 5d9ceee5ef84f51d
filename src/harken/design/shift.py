"""A head that looks T steps back, whatever the tokens are.

    score(i, t) = s e_t . A e_i = s sum over the pairs of cos(w (i - T - t))

A is the turn by T (`waves.py`), so that the score is largest at t = i - T and falls by s times the
gap of the distance from there. A head of key width U holds U/2 pairs. With position 'rotary' the
layer turns queries and keys itself, and T is the angle between two constants:

    b_K = (1, 0),  b_Q = s (cos w T, -sin w T)    in every pair

What a head cannot promise it refuses, with the largest length that it could.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design.head import Head
from harken.design.sharpness import enough, limit, right_attention
from harken.design.subspaces import Subspaces, reading, shared, taking
from harken.design.waves import (
    Waves,
    choose_pairs,
    frequencies,
    gap_table,
    rows_of,
    shift_matrix,
)
from harken.errors import UserError

LONGEST = 2**16  # where the search for the largest length ends


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftPlan:
    """What to promise: 1 - tolerance to the key `offset` back, in texts of up to `length`."""

    waves: Waves
    offset: int
    length: int
    tolerance: float = 0.01
    key_width: int | None = None  # U; that of the waves if not given
    order: MaskKind = "causal"
    precision: torch.dtype = torch.float32  # in which the head will run

    def __post_init__(self) -> None:
        least = 1 if self.order == "strict" else 0
        if not least <= self.offset < self.length:
            raise UserError(
                f"shift: found offset {self.offset} in texts of {self.length}, "
                f"wanted {least} to {self.length - 1}",
                fix="a text must be longer than the offset, and a key must be seen",
            )
        if not 0 < self.tolerance < 1:
            raise UserError(
                f"shift: found tolerance {self.tolerance}, wanted more than 0 and less than 1",
                fix="0.01 lets one part in a hundred of the attention go elsewhere",
            )
        if self.held < 1:
            raise UserError(
                f"shift: found key width {self.key_width}, wanted room for a pair of waves",
                fix="make it 2 at least",
            )

    @property
    def held(self) -> int:
        """Pairs that the head has room for."""
        return (
            self.waves.pairs
            if self.key_width is None
            else min(self.waves.pairs, self.key_width // 2)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharpened:
    """The pairs and the sharpness of a plan, and what follows from them."""

    pairs: tuple[int, ...]
    sharpness: float
    gap: float  # by which the best wrong score is below the right one, at s = 1
    attention: Float[Tensor, "T"]  # to the right key, for the queries offset … length - 1

    @property
    def predicted(self) -> float:
        """At the worst position."""
        return float(self.attention.min())


def sharpen(plan: ShiftPlan) -> Sharpened:
    """As sharp as the tolerance needs, or as the precision allows: see `kept`."""
    every = gap_table(frequencies(plan.waves), plan.length)
    pairs = choose_pairs(every, plan.held)
    gaps = every[:, list(pairs)].sum(dim=1)
    smallest = float(gaps[1:].min()) if plan.length > 1 else 1.0
    most = limit(float(len(pairs)), plan.precision)
    # A gap of nothing asks for endless sharpness.
    wanted = enough(plan.length - 1, smallest, plan.tolerance) if smallest > 0 else most
    sharpness = min(wanted, most)
    return Sharpened(
        pairs=pairs,
        sharpness=sharpness,
        gap=smallest,
        attention=right_attention(gaps, sharpness, plan.order, plan.offset, plan.length),
    )


def kept(plan: ShiftPlan) -> bool:
    """Whether the promise holds at every position, without rounding."""
    return sharpen(plan).predicted >= 1 - plan.tolerance - 1e-12  # one gap may meet it exactly


def largest_length(plan: ShiftPlan, *, most: int = LONGEST) -> int | None:
    """The longest text for which the promise is kept, up to `most`; None where none is.

    Found by halving, as if every longer text were harder: with fewer pairs than there are, another
    length has other pairs, so one beyond may by luck be kept too.
    """
    fits, fails = plan.offset, min(most, plan.waves.span or most) + 1
    most = fails - 1
    trial = plan.offset + 1
    while fails - fits > 1:
        trial = min(max(trial, fits + 1), fails - 1)
        at = replace(plan, length=trial)
        if kept(at):
            fits, trial = trial, 2 * trial if fails > most else (trial + fails) // 2
        else:
            fails, trial = trial, (fits + trial) // 2
    return fits if fits > plan.offset else None


def promised(plan: ShiftPlan) -> Sharpened:
    """The sharpened plan, or a refusal that says how far it would go."""
    span = plan.waves.span
    if span is not None and plan.length > span:
        raise UserError(
            f"shift: found texts of {plan.length} on Fourier waves of span {span}, "
            f"wanted {span} at most: beyond, an offset can be read two ways",
            fix="make the span as long as the text",
        )
    if kept(plan):
        return sharpen(plan)
    reach = largest_length(plan, most=plan.length)
    allows = "no text" if reach is None else f"texts of {reach} at most"
    raise UserError(
        f"shift: found texts of {plan.length}, and {plan.held} pairs of waves with tolerance "
        f"{plan.tolerance:g} in {str(plan.precision).removeprefix('torch.')} allow {allows}",
        fix="give the head more key width, a larger tolerance or more precision",
    )


def shift(plan: ShiftPlan, subspaces: Subspaces | None = None) -> Head:
    """The head for tokens that hold these waves in their part `position`.

    It carries the part `content` into `scratch` where there is one.
    """
    subspaces = subspaces or shared(plan.waves.width)
    if subspaces.position.width != plan.waves.width:
        raise UserError(
            f"shift: found {subspaces.position.width} numbers for positions, "
            f"wanted {plan.waves.width}, as wide as the waves",
            fix="make the two equal",
        )
    found = promised(plan)
    return turned(plan.waves, plan.offset, found.pairs, found.sharpness, subspaces)


def turned(
    waves: Waves, offset: int, pairs: tuple[int, ...], sharpness: float, subspaces: Subspaces
) -> Head:
    """The turn by `offset` in these pairs, that sharp, with nothing promised."""
    rows = rows_of(pairs)
    taken = torch.eye(waves.width, dtype=torch.float64)[rows]
    values = output = None
    if subspaces.scratch.width:
        values = taking(subspaces.content, subspaces.width)
        output = taking(subspaces.scratch, subspaces.width).T
    return Head(
        queries=reading(
            sharpness * shift_matrix(waves, offset)[rows], subspaces.position, subspaces.width
        ),
        keys=reading(taken, subspaces.position, subspaces.width),
        values=values,
        output=output,
    )


def rotary_shift(plan: ShiftPlan, width: int) -> Head:
    """The head for a layer of position 'rotary' whose key width is that of the waves.

    Every pair of the layer is there, so there is nothing to choose: pairs left out are zero.
    """
    found = promised(plan)
    half = plan.waves.pairs
    angles = frequencies(plan.waves)[list(found.pairs)] * plan.offset
    asked, answered = torch.zeros(2, 2 * half, dtype=torch.float64)
    first = torch.tensor(found.pairs)  # rotary pairs a number with the one half a key further on
    asked[first] = found.sharpness * angles.cos()
    asked[first + half] = -found.sharpness * angles.sin()
    answered[first] = 1.0
    nothing = torch.zeros(2 * half, width, dtype=torch.float64)
    return Head(queries=nothing, keys=nothing, query_offset=asked, key_offset=answered)
