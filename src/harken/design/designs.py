"""Designed heads with their target keys and predicted attention, and a check by measurement.

    measured = min over queries of (sum over target keys of attention)

A query without a target key is not checked.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design import content
from harken.design.band import BandPlan, band_head, slow_pairs
from harken.design.head import Head, apply_heads, attention
from harken.design.shift import ShiftPlan, score_gaps, shift, solve
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Design:
    """Heads, one per layer, and a text on which their attention is predicted."""

    heads: tuple[Head, ...]
    sharpness: float
    tokens: Float[Tensor, "T J"]
    targets: Bool[Tensor, "T S"]
    predicted: float  # attention to the target keys at the worst query, at least
    mask_kind: MaskKind = "causal"
    pairs: tuple[int, ...] = ()  # of sines and cosines in use

    def attention(self) -> Float[Tensor, "T S"]:
        """Return the attention of the last head, after the layers before it."""
        tokens = apply_heads(self.heads[:-1], self.tokens, self.mask_kind)
        return attention(self.heads[-1], tokens, self.mask_kind)


def check(design: Design) -> tuple[float, int]:
    """Return the measured attention to the target keys at the worst query, and this query."""
    targets = design.targets
    on_targets = design.attention().masked_fill(~targets, 0).sum(-1)
    on_targets = on_targets.masked_fill(~targets.any(dim=-1), float("inf"))
    if not on_targets.isfinite().any():
        raise UserError(
            f"check: no query has a target key in texts of {len(targets)}", fix="use longer texts"
        )
    return float(on_targets.min()), int(on_targets.argmin())


def offset_keys(length: int, offset: int, around: float = 0.0) -> Bool[Tensor, "T S"]:
    """Return a mask of the keys at distances within `around` of `offset`."""
    positions = torch.arange(length)
    within = (positions[:, None] - positions - offset).abs() <= around
    return within & (positions >= offset)[:, None]


def design_shift(plan: ShiftPlan) -> Design:
    """Give 1 - tolerance to the key `offset` back, at every query that has one."""
    solution = solve(plan)
    return Design(
        heads=(shift(plan),),
        sharpness=solution.sharpness,
        tokens=plan.basis.vectors(plan.length),
        targets=offset_keys(plan.length, plan.offset),
        predicted=solution.predicted,
        mask_kind=plan.mask_kind,
        pairs=solution.pairs,
    )


def design_band(plan: BandPlan) -> Design:
    """Attend, with the last query, within half a band of the offset."""
    pairs, last = slow_pairs(plan), plan.length - 1
    targets = offset_keys(plan.length, plan.offset, plan.band / 2)
    targets[:last] = False
    distances = (last - plan.offset - torch.arange(plan.length)).abs()
    scores = -plan.sharpness * score_gaps(plan.basis.frequencies[list(pairs)], distances).sum(dim=1)
    if plan.mask_kind == "strictly_causal":
        scores[last] = -math.inf
    return Design(
        heads=(band_head(plan),),
        sharpness=plan.sharpness,
        tokens=plan.basis.vectors(plan.length),
        targets=targets,
        predicted=float(scores.softmax(dim=0)[targets[last]].sum()),
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
    wrong = (keys - len(targets)) / len(targets)
    return Design(
        heads=(head,),
        sharpness=sharpness,
        tokens=identity,
        targets=is_target,
        predicted=1 / (1 + wrong * math.exp(-sharpness)),
        mask_kind="bidirectional",
    )


def design_lookup(directions: Float[Tensor, "4 J"], tolerance: float) -> Design:
    """Let x_1 attend to x_3 and x_2 to x_1; the sharpness is beta^2, and x_3 has no target."""
    norm = content.lookup_norm(tolerance)
    return Design(
        heads=(content.lookup(directions),),
        sharpness=norm**2,
        tokens=content.lookup_tokens(directions, norm),
        targets=torch.tensor([[False, False, True], [True, False, False], [False] * 3]),
        predicted=1 / (1 + 2 * math.exp(-(norm**2))),
        mask_kind="bidirectional",
    )


def design_match(plan: content.MatchPlan, seed: int = 0) -> Design:
    """Give 1 - tolerance to the tokens that followed this symbol in a random text, if any."""
    first = solve(plan.first_layer)
    wrong = 1 - first.predicted  # share of wrong contents in the output of the first layer
    generator = torch.Generator().manual_seed(seed)
    symbols = torch.randint(1, plan.symbols, (plan.length,), generator=generator)
    symbols[0] = 0
    return Design(
        heads=content.previous_match(plan),
        sharpness=plan.sharpness,
        tokens=content.matching_tokens(plan, symbols),
        targets=content.matches(symbols),
        predicted=1 / (1 + (plan.length - 1) * math.exp(-plan.sharpness * (1 - 2 * wrong))),
        pairs=first.pairs,
    )
