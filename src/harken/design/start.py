"""Designed heads as the start of training, one line of a recipe each.

    model.start = [{layer = 1, head = 1, kind = "shift", offset = 1}]

The head is designed for the tokens that reach its layer, with this assumption: of what a norm lets
through, places are what matters. `places` is therefore the norm's view of empty tokens:

    p_t = norm(0 + e_t)         score(i, t) = s p_t . A p_i

A norm of size alone (`rms`) only stretches sinusoids, all alike. A norm that takes the mean away
moves every number of a token by as much, and stretches each token its own way. Against the first a
head can read differences from one number, the sine of the slowest wave, which is nearly nothing;
against the second it can leave out slow waves, which only say how much a key was stretched. So a
few heads are tried on p, and the one with the largest gap between right and wrong scores is taken;
s follows from that gap. Contents come on top: they are small at the start (embeddings of 0.02
beside waves of 1), and later the head is free to leave its place. By position:

    sinusoid, fourier   added or beside the token: the shift, or a band
    rotary              the shift between two constants: needs attention.bias
    synthesizer random  a shift, by its table, whatever the position
    learned             refused: contents are of their size (`table.py` has the head)
    none, alibi, relative   refused, with the reason
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.masks import MaskKind
from harken.attention.multihead import MultiHead
from harken.attention.positions import Position
from harken.config import bounded
from harken.design.band import BandPlan, kept_pairs
from harken.design.head import Head, attention
from harken.design.install import install, write_offset
from harken.design.sharpness import enough
from harken.design.shift import ShiftPlan, rotary_shift, turned
from harken.design.subspaces import Part, Subspaces
from harken.design.table import sharpened
from harken.design.waves import Waves, choose_pairs, frequencies, gap_table
from harken.errors import UserError
from harken.layers.stack import Stack
from harken.layers.transformer import TransformerBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class StartConfig:
    """One head that begins as designed; layers and heads are counted from 1."""

    layer: int = bounded(1, at_least=1)
    head: int = bounded(1, at_least=1)
    kind: Literal["shift", "band"] = "shift"
    offset: int = bounded(1, at_least=0)
    band: float = bounded(8.0, above=0.0, at_most=1e6)  # of a band: about so many offsets
    # Of a band; that of a shift follows from the tolerance.
    sharpness: float = bounded(1.0, above=0.0, at_most=1e6)
    tolerance: float = bounded(0.01, above=0.0, below=1.0)  # of a shift
    frozen: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A layer of attention in a model, the norm before it and what is told of places."""

    attention: MultiHead
    norm: nn.Module  # identity where tokens come as they are
    position: Position
    length: int
    order: MaskKind = "causal"


def places(site: Site) -> Float[Tensor, "T J"]:
    """What reaches the layer of tokens without a content."""
    empty = torch.zeros(1, site.length, site.position.token_width)
    with torch.no_grad():
        entered = site.position.embed(empty, torch.arange(site.length)[None, :, None])
        normed: Tensor = site.norm(entered)[0]
    return normed.double()


def stack_sites(stack: Stack, position: Position, length: int, order: MaskKind) -> list[Site]:
    """The layers of a stack, each with the norm that its tokens have passed."""
    before: nn.Module = nn.Identity()
    found = []
    for block in stack.blocks:
        assert isinstance(block, TransformerBlock)
        found.append(
            Site(
                attention=block.attention,
                norm=block.attention_norm if block.pre_norm else before,
                position=position,
                length=length,
                order=order,
            )
        )
        before = block.feedforward_norm
    return found


def begin(sites: Sequence[Site], starts: Sequence[StartConfig]) -> None:
    """Write every start into its layer."""
    for start in starts:
        if start.layer > len(sites):
            raise UserError(
                f"model.start: found layer {start.layer}, wanted 1 to {len(sites)}",
                fix="layers are counted from 1, the first that tokens meet",
            )
        heads = sites[start.layer - 1].attention.heads
        if start.head > heads:
            raise UserError(
                f"model.start: head {start.head} is not in layer {start.layer} "
                f"(expected 1 to {heads})",
                fix="heads are counted from 1",
            )
        begin_one(sites[start.layer - 1], start)


def begin_one(site: Site, start: StartConfig) -> None:
    """One head of one layer."""
    mode: Literal["initialize", "freeze"] = "freeze" if start.frozen else "initialize"
    if site.attention.score.table is not None and start.kind == "shift":
        write_offset(site.attention, start.head - 1, start.offset, start.tolerance, mode)
        return
    install(designed_for(site, start), site.attention, start.head - 1, mode)


def designed_for(site: Site, start: StartConfig) -> Head:
    """The head of a start for the tokens of its layer."""
    if site.position.place == "heads":
        return _turned_by_layer(site, start)
    if start.kind == "band":
        return _band(site, start)
    head = max(
        _candidates(site, start.offset), key=lambda one: smallest_gap(one, site, start.offset)
    )
    gap = smallest_gap(head, site, start.offset)
    if gap <= 0:
        raise UserError(
            f"model.start: found places behind the norm of layer {start.layer} that a head of key "
            f"width {head.key_width} cannot tell apart in texts of {site.length}",
            fix="use norm 'rms', which only stretches places, or give more key width",
        )
    return sharpened(head, enough(site.length - 1, gap, start.tolerance))


def _candidates(site: Site, offset: int) -> Iterator[Head]:
    """Shifts at sharpness one: with as many pairs as fit, half of that, …; plain or differences."""
    waves, subspaces = _told(site.position)
    gaps = gap_table(frequencies(waves), site.length)
    held = min(waves.pairs, (site.attention.score.key_width or waves.width) // 2)
    while held:
        plain = turned(waves, offset, choose_pairs(gaps, held), 1.0, subspaces)
        yield plain
        yield differences(plain, subspaces.position, _stillest(waves))
        held //= 2


def _band(site: Site, start: StartConfig) -> Head:
    waves, subspaces = _told(site.position)
    plan = BandPlan(
        waves=waves,
        offset=start.offset,
        band=start.band,
        sharpness=start.sharpness,
        length=site.length,
        key_width=site.attention.score.key_width,
        order=site.order,
    )
    # A norm stretches places; the sharpness of a recipe is that of waves of size one.
    bare = replace(site, norm=nn.Identity())
    stretch = float(places(site).square().mean() / places(bare).square().mean())
    head = turned(waves, start.offset, kept_pairs(plan), start.sharpness / stretch, subspaces)
    if isinstance(site.norm, nn.LayerNorm):
        head = differences(head, subspaces.position, _stillest(waves))
    return head


def differences(head: Head, part: Part, reference: int) -> Head:
    """The head that reads x_j - x_reference of a part where this one reads x_j."""

    def relative(matrix: Tensor) -> Tensor:
        moved = matrix.clone()
        moved[:, part.start + reference] -= matrix[:, part.start : part.stop].sum(dim=1)
        return moved

    return replace(head, queries=relative(head.queries), keys=relative(head.keys))


def _stillest(waves: Waves) -> int:
    """The coordinate of the slowest sine."""
    slowest = int(frequencies(waves).argmin())
    return 2 * slowest + (0 if waves.kind == "sinusoid" else 1)


def smallest_gap(head: Head, site: Site, offset: int) -> float:
    """Of the right score above the best wrong one, over all queries: measured, not predicted."""
    seen = places(site)
    scores = (seen @ head.queries.T) @ (seen @ head.keys.T).T
    slots = torch.arange(site.length)
    back = slots[:, None] - slots
    hidden = torch.zeros_like(back, dtype=torch.bool)
    if site.order != "any":
        hidden = back < (1 if site.order == "strict" else 0)
    right = scores.masked_fill(back != offset, float("-inf")).amax(dim=-1)
    wrong = scores.masked_fill(hidden | (back == offset), float("-inf")).amax(dim=-1)
    return float((right - wrong)[offset:].min())


def worst_start(site: Site, start: StartConfig) -> float:
    """Attention to the right key at the worst query of empty tokens."""
    weights = attention(designed_for(site, start), places(site), site.order)
    return float(weights.diagonal(-start.offset).min())


def _waves(position: Position) -> Waves:
    waves = position.waves()
    if waves is None:
        raise UserError(
            f"model.start: positions give a head {position.no_waves} (expected waves)",
            fix="set model.position.kind to 'sinusoid', 'fourier' or 'rotary'",
        )
    return waves


def _told(position: Position) -> tuple[Waves, Subspaces]:
    """Return the waves of a position kind, and where in the token they are."""
    waves, token = _waves(position), position.token_width
    part = Part(token if position.place == "concat" else 0, token)
    return waves, Subspaces(width=position.width, content=Part(0, token), position=part)


def _turned_by_layer(site: Site, start: StartConfig) -> Head:
    """Return the head for queries and keys that are rotated by their positions."""
    waves = _waves(site.position)
    if start.kind != "shift":
        raise UserError(
            f"model.start: kind {start.kind!r} does not work with rotated queries and keys "
            "(expected 'shift')",
            fix="set its kind to 'shift', or model.position.kind to 'sinusoid'",
        )
    plan = ShiftPlan(
        waves=waves,
        offset=start.offset,
        length=site.length,
        tolerance=start.tolerance,
        order=site.order,
    )
    return rotary_shift(plan, site.position.width)
