"""Write designed heads into layers: `model.init_heads = [{layer = 1, head = 1, offset = 1}]`.

The head is designed for the tokens that reach its layer, assuming that positions dominate. It
therefore uses p, the normalized positions of empty tokens:

    p_t = norm(0 + e_t)         score(i, t) = s p_t . A p_i

An RMS norm only scales sinusoids. A layer norm subtracts a mean and scales each position
differently. To cancel the mean, a head can read differences from one element, the sine of the
lowest frequency, which is nearly zero; to reduce the influence of the scale, it can leave out low
frequencies. Several such heads are tried on p. The one with the largest gap between right and wrong
scores is used, and s follows from the gap.

Sinusoidal and Fourier positions allow shifts and bands, rotary positions a shift between two
constants (needs attention.bias), and a random synthesizer a shift by its table. Other position
kinds are rejected.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.head import Patch, pad_rows, projection_patches
from harken.attention.masks import MaskKind, build_mask
from harken.attention.multihead import MultiHead
from harken.attention.positions import Position
from harken.attention.sinusoids import Sinusoids
from harken.config import bounded
from harken.design.band import BandPlan, slow_pairs
from harken.design.head import Head, Subspaces
from harken.design.shift import (
    ShiftPlan,
    choose_pairs,
    required_sharpness,
    rotary_shift,
    rotation_head,
    score_gaps,
)
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
    mask_kind: MaskKind = "causal"

    def basis(self) -> Sinusoids:
        """Return the sinusoids of its positions, or raise an error if there are none."""
        basis = self.position.basis()
        if basis is None:
            raise UserError(
                "model.init_heads: expected sinusoidal positions, got "
                f"{self.position.instead_of_sinusoids}",
                fix="set model.position.kind to 'sinusoid', 'fourier' or 'rotary'",
            )
        return basis

    def plan_options(self, config: InitHeadConfig) -> dict[str, Any]:
        """Return the arguments that the plans of all kinds of heads have."""
        return {
            "basis": self.basis(),
            "offset": config.offset,
            "length": self.length,
            "mask_kind": self.mask_kind,
        }

    def subspaces(self) -> Subspaces:
        """Return the parts of its tokens."""
        width = self.position.token_width
        first = width if self.position.place == "concat" else 0
        part = range(first, first + width)
        return Subspaces(width=self.position.width, content=range(width), position=part)

    def normed_positions(self) -> Float[Tensor, "T J"]:
        """Return the layer's inputs for tokens without content."""
        empty = torch.zeros(1, self.length, self.position.token_width)
        with torch.no_grad():
            embedded = self.position.embed(empty, torch.arange(self.length)[None, :, None])
            normed: Tensor = self.norm(embedded)[0]
        return normed.double()


def stack_sites(
    stack: Stack, position: Position, length: int, mask_kind: MaskKind
) -> list[AttentionSite]:
    """Return the layers of a stack, each with the norm before it."""
    norm: nn.Module = nn.Identity()
    sites = []
    for block in stack.blocks:
        assert isinstance(block, TransformerBlock)
        before = block.attention_norm if block.pre_norm else norm
        sites.append(AttentionSite(block.attention, before, position, length, mask_kind))
        norm = block.feedforward_norm
    return sites


def init_heads(sites: Sequence[AttentionSite], configs: Sequence[InitHeadConfig]) -> None:
    """Write every designed head into its layer."""
    for config in configs:
        if config.layer > len(sites):
            raise UserError(
                f"model.init_heads: no layer {config.layer} (expected 1 to {len(sites)})",
                fix="layers are counted from 1, from the input on",
            )
        site = sites[config.layer - 1]
        if config.head > site.attention.heads:
            raise UserError(
                f"model.init_heads: head {config.head} is not in layer {config.layer} "
                f"(expected 1 to {site.attention.heads})",
                fix="heads are counted from 1",
            )
        layer, index, frozen = site.attention, config.head - 1, config.frozen
        if layer.score.table is not None and config.kind == "shift":
            install_offset(layer, index, config.offset, config.tolerance, frozen=frozen)
        else:
            install(design_head(site, config), layer, index, frozen=frozen)


def design_head(site: AttentionSite, config: InitHeadConfig) -> Head:
    """Return the head for the tokens of its layer."""
    if site.position.place == "heads":
        return _rotary_head(site, config)
    if config.kind == "band":
        return _band_head(site, config)
    candidates = list(_candidates(site, config.offset))
    gaps = [smallest_gap(candidate, site, config.offset) for candidate in candidates]
    gap = max(gaps)
    head = candidates[gaps.index(gap)]
    if gap <= 0:
        raise UserError(
            f"model.init_heads: positions after the norm of layer {config.layer} cannot be "
            f"distinguished by a head of key width {head.key_width} in texts of {site.length}",
            fix="use norm 'rms', which only scales positions, or a larger key width",
        )
    sharpness = required_sharpness(site.length - 1, gap, config.tolerance)
    return replace(head, queries=head.queries * sharpness)


def _candidates(site: AttentionSite, offset: int) -> Iterator[Head]:
    """Yield shifts at sharpness 1: as many pairs as fit, half of that, …; plain or differences."""
    basis, subspaces = site.basis(), site.subspaces()
    gaps = score_gaps(basis.frequencies, torch.arange(site.length))
    count = min(basis.pairs, (site.attention.score.key_width or basis.width) // 2)
    while count:
        plain = rotation_head(basis, offset, choose_pairs(gaps, count), 1.0, subspaces)
        yield plain
        yield read_differences(plain, subspaces.position, basis)
        count //= 2


def _band_head(site: AttentionSite, config: InitHeadConfig) -> Head:
    basis, subspaces = site.basis(), site.subspaces()
    plan = BandPlan(
        **site.plan_options(config),
        band=config.band,
        sharpness=config.sharpness,
        key_width=site.attention.score.key_width,
    )
    # The sharpness of a recipe is that of sinusoids of size one; a norm scales them.
    plain = replace(site, norm=nn.Identity()).normed_positions()
    scale = float(site.normed_positions().square().mean() / plain.square().mean())
    sharpness = config.sharpness / scale
    head = rotation_head(basis, config.offset, slow_pairs(plan), sharpness, subspaces)
    if isinstance(site.norm, nn.LayerNorm):
        head = read_differences(head, subspaces.position, basis)
    return head


def _rotary_head(site: AttentionSite, config: InitHeadConfig) -> Head:
    """Return the head for queries and keys that are rotated by their positions."""
    options = site.plan_options(config)
    if config.kind != "shift":
        raise UserError(
            f"model.init_heads: kind {config.kind!r} does not work with rotated queries and keys "
            "(expected 'shift')",
            fix="set its kind to 'shift', or model.position.kind to 'sinusoid'",
        )
    plan = ShiftPlan(**options, tolerance=config.tolerance)
    return rotary_shift(plan, site.position.width)


def read_differences(head: Head, part: range, basis: Sinusoids) -> Head:
    """Return the head that reads differences from the sine of the lowest frequency in a part."""
    slowest = 2 * int(basis.frequencies.argmin())
    reference = part.start + slowest + (0 if basis.kind == "sinusoid" else 1)

    def relative(matrix: Tensor) -> Tensor:
        changed = matrix.clone()
        changed[:, reference] -= matrix[:, part.start : part.stop].sum(dim=1)
        return changed

    return replace(head, queries=relative(head.queries), keys=relative(head.keys))


def smallest_gap(head: Head, site: AttentionSite, offset: int) -> float:
    """Return the smallest gap of the target score above the best wrong one, over all queries."""
    inputs = site.normed_positions()
    scores = (inputs @ head.queries.T) @ (inputs @ head.keys.T).T
    positions = torch.arange(site.length)
    is_target = positions[:, None] - positions == offset
    visible = build_mask(site.mask_kind, positions[None], positions[None]).visible
    assert visible is not None
    right = scores.masked_fill(~is_target, float("-inf")).amax(dim=-1)
    wrong = scores.masked_fill(~visible[0, 0] | is_target, float("-inf")).amax(dim=-1)
    return float((right - wrong)[offset:].min())


def install(head: Head, layer: MultiHead, index: int, *, frozen: bool = False) -> None:
    """Write a head at `index`, counted from 0, into a layer that may be wider than the head.

    A head without values leaves W_V and W_O unchanged. A frozen head gets no gradient, and what
    weight decay changes is restored before the next training pass.
    """
    if not 0 <= index < layer.heads:
        raise UserError(
            f"install: no head {index} (expected 0 to {layer.heads - 1})", fix="count heads from 0"
        )
    _apply(layer.score.install(head, index) + _value_patches(head, layer, index), layer, frozen)


def install_offset(
    layer: MultiHead, index: int, offset: int, tolerance: float, *, frozen: bool = False
) -> None:
    """Write a shift into the table of a random synthesizer."""
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
    if not frozen:
        return

    def zero_gradient(gradient: Tensor, where: tuple[slice | int, ...]) -> Tensor:
        masked = gradient.clone()
        masked[where] = 0.0
        return masked

    for patch in patches:
        hook = partial(zero_gradient, where=patch.where)
        patch.parameter.register_hook(hook)  # type: ignore[no-untyped-call]
    layer.register_forward_pre_hook(lambda *_: write(patches) if layer.training else None)


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
    columns = slice(index * width, (index + 1) * width)
    output = pad_rows(head.output.T, width).T
    return [
        *projection_patches(layer.v_proj, layer.heads, index, head.values),
        Patch(layer.out_proj.weight, (slice(None), columns), output),
    ]
