"""Designed heads with target keys, and their predicted and measured attention.

    measured = min over queries of (sum over target keys of attention)

Queries without a target key are left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.attention.masks import MaskKind
from harken.design import content
from harken.design.band import BandPlan, band_head, band_pairs
from harken.design.head import Head, apply_heads, head_attention
from harken.design.shift import ShiftPlan, score_gaps, shift_head, solve_shift
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Design:
    """Heads, one per layer, and tokens for which their attention is predicted."""

    heads: tuple[Head, ...]
    sharpness: float
    tokens: Float[Tensor, "T J"]
    targets: Bool[Tensor, "T S"]
    predicted: float  # lower bound of a query's attention to its target keys
    mask_kind: MaskKind = "causal"
    pairs: tuple[int, ...] = ()  # indices of the (sin, cos) pairs in use

    def attention(self) -> Float[Tensor, "T S"]:
        """Return the attention of the head in the last layer."""
        tokens = apply_heads(self.heads[:-1], self.tokens, self.mask_kind)
        return head_attention(self.heads[-1], tokens, self.mask_kind)


def measure_worst_query(design: Design) -> tuple[float, int]:
    """Return the smallest attention of a query to its target keys, and this query."""
    targets = design.targets
    measured = design.attention().masked_fill(~targets, 0).sum(-1)
    measured = measured.masked_fill(~targets.any(dim=-1), float("inf"))
    if not measured.isfinite().any():
        raise UserError(
            f"design: no query has a target key in texts of {len(targets)} tokens",
            fix="use longer texts",
        )
    return float(measured.min()), int(measured.argmin())


def offset_keys(length: int, offset: int, radius: float = 0.0) -> Bool[Tensor, "T S"]:
    """Return a mask of keys at distances `offset` ± `radius`, for queries i >= `offset`."""
    positions = torch.arange(length)
    within = (positions[:, None] - positions - offset).abs() <= radius
    return within & (positions >= offset)[:, None]


def design_shift(plan: ShiftPlan) -> Design:
    """Design a head that attends to the key `offset` tokens before the query."""
    solution = solve_shift(plan)
    return Design(
        heads=(shift_head(plan),),
        sharpness=solution.sharpness,
        tokens=plan.basis.vectors(plan.length),
        targets=offset_keys(plan.length, plan.offset),
        predicted=solution.predicted,
        mask_kind=plan.mask_kind,
        pairs=solution.pairs,
    )


def design_band(plan: BandPlan) -> Design:
    """Design a band head; its attention is predicted for the last query."""
    pairs, last = band_pairs(plan), plan.length - 1
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


def design_copy(count: int, targets: Sequence[int], tolerance: float) -> Design:
    """Design a head that attends equally to the tokens `targets` of `count` orthonormal tokens."""
    identity = torch.eye(count, dtype=torch.float64)
    head = content.copy_head(identity, targets, tolerance)
    wrong_keys = count - len(targets)
    sharpness = content.content_sharpness(
        target_keys=len(targets), wrong_keys=wrong_keys, tolerance=tolerance
    )
    is_target = torch.zeros(count, count, dtype=torch.bool)
    is_target[:, targets] = True
    return Design(
        heads=(head,),
        sharpness=sharpness,
        tokens=identity,
        targets=is_target,
        predicted=1 / (1 + wrong_keys / len(targets) * math.exp(-sharpness)),
        mask_kind="bidirectional",
    )


def design_lookup(directions: Float[Tensor, "4 J"], tolerance: float) -> Design:
    """Design the lookup head of `content.py`: x_1 attends to x_3, and x_2 to x_1."""
    norm = content.lookup_norm(tolerance)
    return Design(
        heads=(content.lookup_head(directions),),
        sharpness=norm**2,
        tokens=content.lookup_tokens(directions, norm),
        targets=torch.tensor([[False, False, True], [True, False, False], [False] * 3]),
        predicted=1 / (1 + 2 * math.exp(-(norm**2))),
        mask_kind="bidirectional",
    )


def design_induction(plan: content.InductionPlan, seed: int = 0) -> Design:
    """Design heads that attend to the tokens after earlier equal symbols, on a random text."""
    first = solve_shift(plan.first_layer)
    error = 1 - first.predicted  # share of wrong contents in the output of the first layer
    generator = torch.Generator().manual_seed(seed)
    symbols = torch.randint(1, plan.vocabulary, (plan.length,), generator=generator)
    symbols[0] = 0
    return Design(
        heads=content.induction_heads(plan),
        sharpness=plan.sharpness,
        tokens=content.induction_tokens(plan, symbols),
        targets=content.induction_targets(symbols),
        predicted=1 / (1 + (plan.length - 1) * math.exp(-plan.sharpness * (1 - 2 * error))),
        pairs=first.pairs,
    )
