"""Each designed head beside what it promises, ready for `check`.

shift, band       of places alone, with nothing of a content among them
copy, average     of orthonormal tokens, one direction each
lookup            of the three tokens of the source; the third asks nothing
previous-match    of a start symbol and random ones, at every query whose symbol was there before
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.design.band import BandPlan, band, band_attention, kept_pairs
from harken.design.check import Specification
from harken.design.content import (
    average,
    average_sharpness,
    copy,
    copy_sharpness,
    lookup,
    lookup_norm,
    lookup_tokens,
)
from harken.design.head import Head
from harken.design.matching import MatchPlan, matches, matching_tokens, previous_match
from harken.design.sharpness import right_attention
from harken.design.shift import ShiftPlan, promised, shift
from harken.design.waves import frequencies, gap_table, wave_vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class Designed:
    """Heads, one a layer, and their promise for texts of up to `length`."""

    heads: tuple[Head, ...]
    promise: Specification
    length: int
    sharpness: float
    pairs: tuple[int, ...] = ()  # of waves that are used


def offset_keys(length: int, offset: int, around: float = 0.0) -> Bool[Tensor, "T S"]:
    """True at the keys `offset` back, or within `around` of there."""
    places = torch.arange(length)
    within = (places[:, None] - places - offset).abs() <= around
    return within & (places >= offset)[:, None]


def designed_shift(plan: ShiftPlan) -> Designed:
    """1 - tolerance to the key `offset` back, at every query that has one."""
    found = promised(plan)
    gaps = gap_table(frequencies(plan.waves)[list(found.pairs)], plan.length).sum(dim=1)

    def predicted(length: int) -> float:
        return float(right_attention(gaps, found.sharpness, plan.order, plan.offset, length).min())

    promise = Specification(
        tokens=lambda length: wave_vectors(plan.waves, length),
        right=lambda length: offset_keys(length, plan.offset),
        predicted=predicted,
        order=plan.order,
    )
    return Designed(
        heads=(shift(plan),),
        promise=promise,
        length=plan.length,
        sharpness=found.sharpness,
        pairs=found.pairs,
    )


def designed_band(plan: BandPlan) -> Designed:
    """The share within half a band of the offset, of the last query alone."""

    def right(length: int) -> Bool[Tensor, "T S"]:
        keys = offset_keys(length, plan.offset, plan.band / 2)
        keys[:-1] = False
        return keys

    def predicted(length: int) -> float:
        return float(band_attention(replace(plan, length=length))[right(length)[-1]].sum())

    promise = Specification(
        tokens=lambda length: wave_vectors(plan.waves, length),
        right=right,
        predicted=predicted,
        order=plan.order,
    )
    return Designed(
        heads=(band(plan),),
        promise=promise,
        length=plan.length,
        sharpness=plan.sharpness,
        pairs=kept_pairs(plan),
    )


def designed_copy(keys: int, index: int, tolerance: float) -> Designed:
    """1 - tolerance to one of so many tokens."""
    tokens = torch.eye(keys, dtype=torch.float64)
    return _content(copy(tokens, index, tolerance), [index], copy_sharpness(keys, tolerance))


def designed_average(keys: int, one: int, other: int, tolerance: float) -> Designed:
    """1 - tolerance to two of so many tokens together, half to each."""
    tokens = torch.eye(keys, dtype=torch.float64)
    head = average(tokens, one, other, tolerance)
    return _content(head, [one, other], average_sharpness(keys, tolerance))


def _content(head: Head, wanted: list[int], sharpness: float) -> Designed:
    """Fewer tokens than the head knows are those up to the last that it wants, or more."""

    def right(length: int) -> Bool[Tensor, "T S"]:
        keys = torch.zeros(length, length, dtype=torch.bool)
        keys[:, wanted] = True
        return keys

    def predicted(length: int) -> float:
        wrong = (length - len(wanted)) / len(wanted)
        return 1 / (1 + wrong * math.exp(-sharpness))

    count = head.keys.shape[1]
    promise = Specification(
        tokens=lambda length: torch.eye(count, dtype=torch.float64)[:length],
        right=right,
        predicted=predicted,
        order="any",
    )
    return Designed(heads=(head,), promise=promise, length=count, sharpness=sharpness)


def designed_lookup(directions: Float[Tensor, "4 J"], tolerance: float) -> Designed:
    """x_1 looks at x_3 and x_2 at x_1; sharpness is beta^2."""
    norm = lookup_norm(tolerance)

    def right(length: int) -> Bool[Tensor, "T S"]:
        assert length == 3, "the source has three tokens"
        return torch.tensor([[False, False, True], [True, False, False], [False] * 3])

    promise = Specification(
        tokens=lambda length: lookup_tokens(directions, norm),
        right=right,
        predicted=lambda length: 1 / (1 + 2 * math.exp(-(norm**2))),
        order="any",
    )
    return Designed(heads=(lookup(directions),), promise=promise, length=3, sharpness=norm**2)


def random_symbols(plan: MatchPlan, length: int, seed: int) -> Int[Tensor, "T"]:
    """A start symbol, then any of the others."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(1, plan.symbols, (length,), generator=generator)
    drawn[0] = 0
    return drawn


def designed_match(plan: MatchPlan, seed: int = 0) -> Designed:
    """1 - tolerance to the tokens that followed this symbol, where there are any."""
    first = promised(plan.first)
    left = 1 - first.predicted  # of a wrong content in what the first layer writes

    def predicted(length: int) -> float:
        return 1 / (1 + (length - 1) * math.exp(-plan.sharpness * (1 - 2 * left)))

    promise = Specification(
        tokens=lambda length: matching_tokens(plan, random_symbols(plan, length, seed)),
        right=lambda length: matches(random_symbols(plan, length, seed)),
        predicted=predicted,
    )
    return Designed(
        heads=previous_match(plan),
        promise=promise,
        length=plan.length,
        sharpness=plan.sharpness,
        pairs=first.pairs,
    )
