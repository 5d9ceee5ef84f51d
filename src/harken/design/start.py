"""Write designed heads into layers: `model.init_heads = [{layer = 1, head = 1, offset = 1}]`.

The head is designed for the tokens that reach its layer, assuming that positions dominate. It
therefore uses p, the normalized positions of empty tokens:

    p_t = norm(0 + e_t)         score(i, t) = s p_t . A p_i

An RMS norm only scales sinusoids. A layer norm subtracts a mean and scales each position
differently. Against the first a head can read differences from one element, the sine of the lowest
frequency, which is nearly zero; against the second it can leave out low frequencies, which mostly
measure the scale of a key. So a few heads are tried on p, and the one with the largest gap between
right and wrong scores is used; s follows from the gap.

Sinusoidal and Fourier positions allow shifts and bands, rotary positions a shift between two
constants (needs attention.bias), and a random synthesizer a shift by its table. Other position
kinds are rejected.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.head import Patch, pad_rows
from harken.attention.masks import MaskKind
from harken.attention.multihead import MultiHead
from harken.attention.positions import Position
from harken.config import bounded
from harken.design.band import BandPlan, slow_pairs
from harken.design.head import Head, Subspaces
from harken.design.shift import ShiftPlan, required_sharpness, rotary_shift, rotation_head
from harken.design.waves import Waves, choose_pairs, frequencies, gap_table
from harken.errors import UserError
from harken.layers.transformer import Stack, TransformerBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class InitHeadConfig:
    """One designed head; layers and heads are counted from 1."""

    layer: int = bounded(1, at_least=1)  # layer of the head, from 1
    head: int = bounded(1, at_least=1)  # head in its layer, from 1
    # "shift" attends to the token `offset` steps back, "band" to the tokens around it
    kind: Literal["shift", "band"] = "shift"
    offset: int = bounded(1, at_least=0)  # distance to the attended token in steps
    band: float = bounded(8.0, above=0.0, at_most=1e6)  # width of a band in steps
    # factor of the scores of a band; that of a shift follows from the tolerance
    sharpness: float = bounded(1.0, above=0.0, at_most=1e6)
    tolerance: float = bounded(0.01, above=0.0, below=1.0)  # attention of a shift to other tokens
    frozen: bool = False  # do not train the weights of the head


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """An attention layer of a model, the norm before it and its positions."""

    attention: MultiHead
    norm: nn.Module  # identity if there is none
    position: Position
    length: int
    order: MaskKind = "causal"


def normed_positions(site: AttentionSite) -> Float[Tensor, "T J"]:
    """Return the layer's inputs for tokens without content."""
    empty = torch.zeros(1, site.length, site.position.token_width)
    with torch.no_grad():
        embedded = site.position.embed(empty, torch.arange(site.length)[None, :, None])
        normed: Tensor = site.norm(embedded)[0]
    return normed.double()


def stack_sites(
    stack: Stack, position: Position, length: int, order: MaskKind
) -> list[AttentionSite]:
    """Return the layers of a stack, each with the norm before it."""
    norm: nn.Module = nn.Identity()
    sites = []
    for block in stack.blocks:
        assert isinstance(block, TransformerBlock)
        before = block.attention_norm if block.pre_norm else norm
        sites.append(AttentionSite(block.attention, before, position, length, order))
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
        layer, index, frozen = site.attention, start.head - 1, start.frozen
        if layer.score.table is not None and start.kind == "shift":
            install_offset(layer, index, start.offset, start.tolerance, frozen=frozen)
        else:
            install(design_head(site, start), layer, index, frozen=frozen)


def design_head(site: AttentionSite, start: InitHeadConfig) -> Head:
    """Return the head of a start for the tokens of its layer."""
    if site.position.place == "heads":
        return _rotary_head(site, start)
    if start.kind == "band":
        return _band_head(site, start)
    candidates = list(_candidates(site, start.offset))
    gaps = [smallest_gap(candidate, site, start.offset) for candidate in candidates]
    gap = max(gaps)
    head = candidates[gaps.index(gap)]
    if gap <= 0:
        raise UserError(
            f"model.init_heads: positions after the norm of layer {start.layer} cannot be "
            f"distinguished by a head of key width {head.key_width} in texts of {site.length}",
            fix="use norm 'rms', which only scales positions, or a larger key width",
        )
    sharpness = required_sharpness(site.length - 1, gap, start.tolerance)
    return replace(head, queries=head.queries * sharpness)


def _candidates(site: AttentionSite, offset: int) -> Iterator[Head]:
    """Yield shifts at sharpness 1: as many pairs as fit, half of that, …; plain or differences."""
    waves, subspaces = _position_part(site.position)
    gaps = gap_table(frequencies(waves), site.length)
    count = min(waves.pairs, (site.attention.score.key_width or waves.width) // 2)
    while count:
        plain = rotation_head(waves, offset, choose_pairs(gaps, count), 1.0, subspaces)
        yield plain
        yield differences(plain, subspaces.position, waves)
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
    head = rotation_head(waves, start.offset, slow_pairs(plan), start.sharpness / scale, subspaces)
    if isinstance(site.norm, nn.LayerNorm):
        head = differences(head, subspaces.position, waves)
    return head


def differences(head: Head, part: range, waves: Waves) -> Head:
    """Return the head that reads differences from the sine of the lowest frequency in a part."""
    slowest = 2 * int(frequencies(waves).argmin())
    reference = part.start + slowest + (0 if waves.kind == "sinusoid" else 1)

    def relative(matrix: Tensor) -> Tensor:
        changed = matrix.clone()
        changed[:, reference] -= matrix[:, part.start : part.stop].sum(dim=1)
        return changed

    return replace(head, queries=relative(head.queries), keys=relative(head.keys))


def smallest_gap(head: Head, site: AttentionSite, offset: int) -> float:
    """Return the smallest gap of the target score above the best wrong one, over all queries."""
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
    """Return the waves of a position kind, and their part of the token."""
    waves, token = _waves(position), position.token_width
    first = token if position.place == "concat" else 0
    part = range(first, first + token)
    return waves, Subspaces(width=position.width, content=range(token), position=part)


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


def install(head: Head, layer: MultiHead, index: int, *, frozen: bool = False) -> None:
    """Write a head at `index`, counted from 0, into a layer that may be wider than the head.

    A head without values leaves W_V and W_O unchanged. A frozen head gets no gradient, and what
    weight decay changes is restored before the next training pass.
    """
    _check_index(layer, index)
    patches = layer.score.install(head, index) + _value_patches(head, layer, index)
    _apply(patches, layer, frozen)


def install_offset(
    layer: MultiHead, index: int, offset: int, tolerance: float, *, frozen: bool = False
) -> None:
    """Write a shift into the table of a random synthesizer."""
    _check_index(layer, index)
    table = layer.score.table
    if table is None:
        raise UserError(
            "install: the score has no table of positions (expected a random synthesizer)",
            fix="design a head and install that",
        )
    length = table.shape[-1]
    sharpness = required_sharpness(length - 1, 1.0, tolerance)
    scores = sharpness * torch.eye(length).roll(offset, dims=0).tril(-offset)
    _apply([Patch(table, (index,), scores)], layer, frozen)


@torch.no_grad()
def write(patches: Iterable[Patch]) -> None:
    """Copy the values of every patch into its parameter."""
    for patch in patches:
        patch.parameter[patch.where] = patch.values.to(patch.parameter)


def _apply(patches: list[Patch], layer: MultiHead, frozen: bool) -> None:
    write(patches)
    if frozen:
        for patch in patches:
            patch.parameter.register_hook(partial(_zero_gradient, patch.where))  # type: ignore[no-untyped-call]
        layer.register_forward_pre_hook(lambda *_: write(patches) if layer.training else None)


def _zero_gradient(where: tuple[slice | int, ...], gradient: Tensor) -> Tensor:
    masked = gradient.clone()
    masked[where] = 0.0
    return masked


def _check_index(layer: MultiHead, index: int) -> None:
    if not 0 <= index < layer.heads:
        raise UserError(
            f"install: no head {index} (expected 0 to {layer.heads - 1})", fix="count heads from 0"
        )


def _value_patches(head: Head, layer: MultiHead, index: int) -> list[Patch]:
    """Return W_V and W_O of a head with values."""
    if head.values is None or head.output is None:
        return []
    if layer.v_proj is None or layer.out_proj is None:
        raise UserError(
            "install: the layer has no v_proj or no out_proj (a head with values needs both)",
            fix="enable both, or design the head without values",
        )
    width = layer.v_proj.out_features // layer.kv_heads
    if layer.kv_heads != layer.heads or head.values.shape[0] > width:
        raise UserError(
            f"install: values of width {head.values.shape[0]} do not fit (the layer has "
            f"{layer.kv_heads} times {width} values for {layer.heads} heads)",
            fix="set attention.head_width, and leave out attention.kv_heads",
        )
    part = slice(index * width, (index + 1) * width)
    patches = [
        Patch(layer.v_proj.weight, (part,), pad_rows(head.values, width)),
        Patch(layer.out_proj.weight, (slice(None), part), pad_rows(head.output.T, width).T),
    ]
    if layer.v_proj.bias is not None:
        patches.append(Patch(layer.v_proj.bias, (part,), head.values.new_zeros(width)))
    return patches
