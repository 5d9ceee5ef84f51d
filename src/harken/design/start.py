"""Designed heads as initial weights, one line of a recipe each.

    model.init_heads = [{layer = 1, head = 1, kind = "shift", offset = 1}]

The head is designed for the tokens that reach its layer, assuming that positions dominate. It
therefore uses p, the normalized positions of empty tokens:

    p_t = norm(0 + e_t)         score(i, t) = s p_t . A p_i

An RMS norm only scales sinusoids, all by the same factor. A layer norm subtracts a mean, which
differs between positions, and scales each position differently. Against the first a head can read
differences from one element, the sine of the lowest frequency, which is nearly zero; against the
second it can leave out low frequencies, which mostly measure the scale of a key. So a few heads are
tried on p, and the one with the largest gap between right and wrong scores is used; s follows from
the gap. Contents come on top: they are small at the start (embeddings of 0.02 beside waves of 1),
and training may change the head later. By position kind:

    sinusoid, fourier   added or concatenated: shift or band
    rotary              a shift between two constants: needs attention.bias
    synthesizer random  a shift, by its table, for any position kind
    learned, none, alibi, relative   rejected, with the reason
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
from harken.design.head import Head
from harken.design.install import install, install_offset
from harken.design.sharpness import required_sharpness
from harken.design.shift import ShiftPlan, rotary_shift, rotation_head
from harken.design.subspaces import Part, Subspaces
from harken.design.waves import Waves, choose_pairs, frequencies, gap_table
from harken.errors import UserError
from harken.layers.transformer import Stack, TransformerBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class InitHeadConfig:
    """One designed head; layers and heads are counted from 1."""

    layer: int = bounded(1, at_least=1)
    head: int = bounded(1, at_least=1)
    kind: Literal["shift", "band"] = "shift"
    offset: int = bounded(1, at_least=0)
    band: float = bounded(8.0, above=0.0, at_most=1e6)  # width of a band in steps
    # Of a band; that of a shift follows from the tolerance.
    sharpness: float = bounded(1.0, above=0.0, at_most=1e6)
    tolerance: float = bounded(0.01, above=0.0, below=1.0)  # of a shift
    frozen: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSite:
    """An attention layer of a model, the norm before it and its positions."""

    attention: MultiHead
    norm: nn.Module  # identity if there is none
    position: Position
    length: int
    order: MaskKind = "causal"


def normed_positions(site: AttentionSite) -> Float[Tensor, "T J"]:
    """The layer's inputs for tokens without content."""
    empty = torch.zeros(1, site.length, site.position.token_width)
    with torch.no_grad():
        embedded = site.position.embed(empty, torch.arange(site.length)[None, :, None])
        normed: Tensor = site.norm(embedded)[0]
    return normed.double()


def stack_sites(
    stack: Stack, position: Position, length: int, order: MaskKind
) -> list[AttentionSite]:
    """The layers of a stack, each with the norm before it."""
    norm: nn.Module = nn.Identity()
    sites = []
    for block in stack.blocks:
        assert isinstance(block, TransformerBlock)
        sites.append(
            AttentionSite(
                attention=block.attention,
                norm=block.attention_norm if block.pre_norm else norm,
                position=position,
                length=length,
                order=order,
            )
        )
        norm = block.feedforward_norm
    return sites


def init_heads(sites: Sequence[AttentionSite], starts: Sequence[InitHeadConfig]) -> None:
    """Write every designed head into its layer."""
    for start in starts:
        if start.layer > len(sites):
            raise UserError(
                f"model.init_heads: no layer {start.layer} (expected 1 to {len(sites)})",
                fix="layers are counted from 1, from the input on",
            )
        site = sites[start.layer - 1]
        if start.head > site.attention.heads:
            raise UserError(
                f"model.init_heads: head {start.head} is not in layer {start.layer} "
                f"(expected 1 to {site.attention.heads})",
                fix="heads are counted from 1",
            )
        mode: Literal["initialize", "freeze"] = "freeze" if start.frozen else "initialize"
        if site.attention.score.table is not None and start.kind == "shift":
            install_offset(site.attention, start.head - 1, start.offset, start.tolerance, mode)
        else:
            install(design_head(site, start), site.attention, start.head - 1, mode)


def design_head(site: AttentionSite, start: InitHeadConfig) -> Head:
    """The head of a start for the tokens of its layer."""
    if site.position.place == "heads":
        return _rotary_head(site, start)
    if start.kind == "band":
        return _band_head(site, start)
    gap, head = max(
        (
            (smallest_gap(head, site, start.offset), head)
            for head in _candidates(site, start.offset)
        ),
        key=lambda candidate: candidate[0],
    )
    if gap <= 0:
        raise UserError(
            f"model.init_heads: positions after the norm of layer {start.layer} cannot be "
            f"distinguished by a head of key width {head.key_width} in texts of {site.length}",
            fix="use norm 'rms', which only scales positions, or a larger key width",
        )
    return replace(
        head, queries=head.queries * required_sharpness(site.length - 1, gap, start.tolerance)
    )


def _candidates(site: AttentionSite, offset: int) -> Iterator[Head]:
    """Shifts at sharpness 1: with as many pairs as fit, half of that, …; plain or differences."""
    waves, subspaces = _position_part(site.position)
    gaps = gap_table(frequencies(waves), site.length)
    count = min(waves.pairs, (site.attention.score.key_width or waves.width) // 2)
    while count:
        plain = rotation_head(waves, offset, choose_pairs(gaps, count), 1.0, subspaces)
        yield plain
        yield differences(plain, subspaces.position, _slowest_sine(waves))
        count //= 2


def _band_head(site: AttentionSite, start: InitHeadConfig) -> Head:
    waves, subspaces = _position_part(site.position)
    plan = BandPlan(
        waves=waves,
        offset=start.offset,
        band=start.band,
        sharpness=start.sharpness,
        length=site.length,
        key_width=site.attention.score.key_width,
        order=site.order,
    )
    # The sharpness of a recipe is that of waves of size one; a norm scales them.
    plain = replace(site, norm=nn.Identity())
    scale = float(normed_positions(site).square().mean() / normed_positions(plain).square().mean())
    head = rotation_head(waves, start.offset, kept_pairs(plan), start.sharpness / scale, subspaces)
    if isinstance(site.norm, nn.LayerNorm):
        head = differences(head, subspaces.position, _slowest_sine(waves))
    return head


def differences(head: Head, part: Part, reference: int) -> Head:
    """The head that reads x_j - x_reference of a part where this one reads x_j."""

    def relative(matrix: Tensor) -> Tensor:
        changed = matrix.clone()
        changed[:, part.start + reference] -= matrix[:, part.start : part.stop].sum(dim=1)
        return changed

    return replace(head, queries=relative(head.queries), keys=relative(head.keys))


def _slowest_sine(waves: Waves) -> int:
    """The element with the sine of the lowest frequency."""
    slowest = int(frequencies(waves).argmin())
    return 2 * slowest + (0 if waves.kind == "sinusoid" else 1)


def smallest_gap(head: Head, site: AttentionSite, offset: int) -> float:
    """The measured gap of the target score above the best wrong one, over all queries."""
    inputs = normed_positions(site)
    scores = (inputs @ head.queries.T) @ (inputs @ head.keys.T).T
    positions = torch.arange(site.length)
    back = positions[:, None] - positions
    hidden = torch.zeros_like(back, dtype=torch.bool)
    if site.order != "bidirectional":
        hidden = back < (1 if site.order == "strictly_causal" else 0)
    right = scores.masked_fill(back != offset, float("-inf")).amax(dim=-1)
    wrong = scores.masked_fill(hidden | (back == offset), float("-inf")).amax(dim=-1)
    return float((right - wrong)[offset:].min())


def _waves(position: Position) -> Waves:
    waves = position.waves()
    if waves is None:
        raise UserError(
            f"model.init_heads: positions give a head {position.no_waves} (expected waves)",
            fix="set model.position.kind to 'sinusoid', 'fourier' or 'rotary'",
        )
    return waves


def _position_part(position: Position) -> tuple[Waves, Subspaces]:
    """The waves of a position kind, and their part of the token."""
    waves, token = _waves(position), position.token_width
    part = Part(token if position.place == "concat" else 0, token)
    return waves, Subspaces(width=position.width, content=Part(0, token), position=part)


def _rotary_head(site: AttentionSite, start: InitHeadConfig) -> Head:
    """The head for queries and keys that are rotated by their positions."""
    waves = _waves(site.position)
    if start.kind != "shift":
        raise UserError(
            f"model.init_heads: kind {start.kind!r} does not work with rotated queries and keys "
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
