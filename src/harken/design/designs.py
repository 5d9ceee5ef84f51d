"""Designed heads with their target keys and predicted attention, and a check by measurement.

    measured = min over queries of (sum over target keys of attention)

A query without a target key is not checked.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design import content
from harken.design.band import BandPlan, band, slow_pairs
from harken.design.head import Head, apply_heads, attention
from harken.design.shift import ShiftPlan, score_gaps, shift, solve
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """Heads, one per layer, for texts of up to `length`; functions take the length of a text."""

    heads: tuple[Head, ...]
    length: int
    sharpness: float
    tokens: Callable[[int], Float[Tensor, "T J"]]
    targets: Callable[[int], Bool[Tensor, "T S"]]
    predicted: Callable[[int], float]  # attention to the target keys at the worst query, at least
    mask_kind: MaskKind = "causal"
    pairs: tuple[int, ...] = ()  # of sines and cosines in use

    def attention(self, length: int) -> Float[Tensor, "T S"]:
        """Return the attention of the last head, after the layers before it."""
        tokens = apply_heads(self.heads[:-1], self.tokens(length), self.mask_kind)
        return attention(self.heads[-1], tokens, self.mask_kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """Attention to the target keys at the worst query of a text."""

    predicted: float
    measured: float
    query: int  # the worst


def check(design: Design, length: int | None = None) -> CheckResult:
    """Predict and measure the attention in a text, by default of the design's length."""
    length = design.length if length is None else length
    targets = design.targets(length)
    on_targets = design.attention(length).masked_fill(~targets, 0).sum(-1)
    on_targets = on_targets.masked_fill(~targets.any(dim=-1), float("inf"))
    if not on_targets.isfinite().any():
        raise UserError(
            f"check: no query has a target key in texts of {length}", fix="use longer texts"
        )
    query, predicted = int(on_targets.argmin()), design.predicted(length)
    return CheckResult(predicted=predicted, measured=float(on_targets.min()), query=query)


def offset_keys(length: int, offset: int, around: float = 0.0) -> Bool[Tensor, "T S"]:
    """Return a mask of the keys `offset` back, or within `around` of there."""
    positions = torch.arange(length)
    within = (positions[:, None] - positions - offset).abs() <= around
    return within & (positions >= offset)[:, None]


def design_shift(plan: ShiftPlan) -> Design:
    """Give 1 - tolerance to the key `offset` back, at every query that has one."""
    solution = solve(plan)
    return Design(
        heads=(shift(plan),),
        length=plan.length,
        sharpness=solution.sharpness,
        tokens=plan.basis.vectors,
        targets=lambda length: offset_keys(length, plan.offset),
        predicted=solution.predicted,
        mask_kind=plan.mask_kind,
        pairs=solution.pairs,
    )


def design_band(plan: BandPlan) -> Design:
    """Attend, with the last query, within half a band of the offset."""
    pairs = slow_pairs(plan)

    def targets(length: int) -> Bool[Tensor, "T S"]:
        keys = offset_keys(length, plan.offset, plan.band / 2)
        keys[:-1] = False
        return keys

    def predicted(length: int) -> float:
        distances = (length - 1 - plan.offset - torch.arange(length)).abs()
        gaps = score_gaps(plan.basis.frequencies[list(pairs)], distances).sum(dim=1)
        scores = -plan.sharpness * gaps
        if plan.mask_kind == "strictly_causal":
            scores[-1] = -math.inf
        return float(scores.softmax(dim=0)[targets(length)[-1]].sum())

    return Design(
        heads=(band(plan),),
        length=plan.length,
        sharpness=plan.sharpness,
        tokens=plan.basis.vectors,
        targets=targets,
        predicted=predicted,
        mask_kind=plan.mask_kind,
        pairs=pairs,
    )


def design_copy(keys: int, targets: Sequence[int], tolerance: float) -> Design:
    """Give 1 - tolerance to one of `keys` tokens, or to several in equal shares."""
    identity = torch.eye(keys, dtype=torch.float64)
    head = content.copy_head(identity, targets, tolerance)
    sharpness = content.content_sharpness(keys, len(targets), tolerance)
    is_target = torch.zeros(keys, keys, dtype=torch.bool)
    is_target[:, targets] = True

    def predicted(length: int) -> float:
        wrong = (length - len(targets)) / len(targets)
        return 1 / (1 + wrong * math.exp(-sharpness))

    return Design(
        heads=(head,),
        length=keys,
        sharpness=sharpness,
        tokens=lambda length: identity[:length],
        targets=lambda length: is_target[:length, :length],
        predicted=predicted,
        mask_kind="bidirectional",
    )


def design_lookup(directions: Float[Tensor, "4 J"], tolerance: float) -> Design:
    """Let x_1 attend to x_3 and x_2 to x_1; the sharpness is beta^2, and x_3 has no target."""
    norm = content.lookup_norm(tolerance)
    targets = torch.tensor([[False, False, True], [True, False, False], [False] * 3])
    return Design(
        heads=(content.lookup(directions),),
        length=3,
        sharpness=norm**2,
        tokens=lambda length: content.lookup_tokens(directions, norm),
        targets=lambda length: targets,
        predicted=lambda length: 1 / (1 + 2 * math.exp(-(norm**2))),
        mask_kind="bidirectional",
    )


def random_symbols(plan: content.MatchPlan, length: int, seed: int) -> Int[Tensor, "T"]:
    """Return a start symbol, then random other ones."""
    generator = torch.Generator().manual_seed(seed)
    symbols = torch.randint(1, plan.symbols, (length,), generator=generator)
    symbols[0] = 0
    return symbols


def design_match(plan: content.MatchPlan, seed: int = 0) -> Design:
    """Give 1 - tolerance to the tokens that followed this symbol, if there are any."""
    first = solve(plan.first_layer)
    wrong = 1 - first.predicted()  # share of wrong contents in the output of the first layer

    def predicted(length: int) -> float:
        return 1 / (1 + (length - 1) * math.exp(-plan.sharpness * (1 - 2 * wrong)))

    return Design(
        heads=content.previous_match(plan),
        length=plan.length,
        sharpness=plan.sharpness,
        tokens=lambda length: content.matching_tokens(plan, random_symbols(plan, length, seed)),
        targets=lambda length: content.matches(random_symbols(plan, length, seed)),
        predicted=predicted,
        pairs=first.pairs,
    )
