"""Write designed heads into layers: `model.init_heads = [{layer = 1, head = 1, offset = 1}]`.

The design assumes that positions dominate the inputs of the layer. It uses p, the inputs of the
layer for token embeddings that are zero:

    p_t = norm(0 + e_t)         score(i, t) = s p_t . A p_i

Here e_t is the position vector of t, i is the query, t is the key, and A is the rotation of
`attention/sinusoids.py` that shifts a position. An RMS norm only scales sinusoids. A layer norm
subtracts a mean and scales each position differently. To cancel the mean, a head can subtract one
element of p from all others: the sine of the lowest frequency. In sinusoidal positions, it is
nearly zero before the norm. To reduce the influence of the scale, a head can leave out low
frequencies. Several candidates are evaluated on p. The one with the largest gap between target and
wrong scores is installed, and the sharpness s follows from the gap.

Sinusoidal and Fourier positions support shifts and bands; rotary positions, with `attention.bias`,
only shifts. A random synthesizer stores a shift in its table. Other position kinds are rejected.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.head import WeightPatch, pad_rows, projection_patches
from harken.attention.masks import MaskKind, build_mask
from harken.attention.multihead import MultiHead
from harken.attention.positions import Position
from harken.attention.sinusoids import Sinusoids
from harken.config import bounded
from harken.design.band import BandPlan, band_pairs
from harken.design.head import Head, Subspaces
from harken.design.shift import (
    ShiftPlan,
    choose_pairs,
    required_sharpness,
    rotary_shift_head,
    rotation_head,
    score_gaps,
)
from harken.errors import UserError
from harken.layers.transformer import Stack, TransformerBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class InitHeadConfig:
    """A head with designed initial weights; layers and heads are counted from 1."""

    layer: int = bounded(1, at_least=1)  # layer of the head, from 1
    head: int = bounded(1, at_least=1)  # head in its layer, from 1
    # "shift" attends to the token `offset` tokens back, "band" to that token and its neighbors
    kind: Literal["shift", "band"] = "shift"
    offset: int = bounded(1, at_least=0)  # distance to the attended token, in tokens
    band: float = bounded(8.0, above=0.0, at_most=1e6)  # width of a band, in tokens
    # factor of the scores of a band; the factor of a shift follows from the tolerance
    sharpness: float = bounded(1.0, above=0.0, at_most=1e6)
    # maximum attention of a shift head to all other tokens together
    tolerance: float = bounded(0.01, above=0.0, below=1.0)
    frozen: bool = False  # do not train the weights of the head


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """An attention layer of a model, the norm before it, and the positions of its inputs."""

    attention: MultiHead
    norm: nn.Module  # nn.Identity if there is none
    position: Position
    length: int  # maximum length of a text
    mask_kind: MaskKind = "causal"

    def basis(self) -> Sinusoids:
        """Return the sinusoids of the positions; raise an error if the kind has none."""
        basis = self.position.basis()
        if basis is None:
            raise UserError(
                f"model.init_heads: expected sinusoidal positions, got {self.position.description}",
                fix="set model.position.kind to 'sinusoid', 'fourier' or 'rotary'",
            )
        return basis

    def plan_options(self, config: InitHeadConfig) -> dict[str, Any]:
        return {
            "basis": self.basis(),
            "offset": config.offset,
            "length": self.length,
            "mask_kind": self.mask_kind,
        }

    def subspaces(self) -> Subspaces:
        width = self.position.token_width
        start = width if self.position.combine == "concat" else 0
        position = range(start, start + width)
        return Subspaces(width=self.position.width, content=range(width), position=position)

    def normed_positions(self) -> Float[Tensor, "T J"]:
        """Return p, the inputs of the layer for token embeddings that are zero."""
        embeddings = torch.zeros(1, self.length, self.position.token_width)
        with torch.no_grad():
            embedded = self.position.embed(embeddings, torch.arange(self.length)[None, :, None])
            normed: Tensor = self.norm(embedded)[0]
        return normed.double()


def stack_sites(
    stack: Stack, position: Position, length: int, mask_kind: MaskKind
) -> list[AttentionSite]:
    """Return the attention layers of a stack, each with the norm of its inputs."""
    norm: nn.Module = nn.Identity()
    sites = []
    for block in stack.blocks:
        assert isinstance(block, TransformerBlock)
        input_norm = block.attention_norm if block.pre_norm else norm
        sites.append(AttentionSite(block.attention, input_norm, position, length, mask_kind))
        norm = block.feedforward_norm  # a post-norm block normalizes its outputs
    return sites


def init_heads(sites: Sequence[AttentionSite], configs: Sequence[InitHeadConfig]) -> None:
    """Write every designed head into its layer."""
    for config in configs:
        if config.layer > len(sites):
            raise UserError(
                f"model.init_heads: no layer {config.layer} (expected 1 to {len(sites)})",
                fix="count layers from 1, starting at the input",
            )
        site = sites[config.layer - 1]
        if config.head > site.attention.heads:
            raise UserError(
                f"model.init_heads: no head {config.head} in layer {config.layer} "
                f"(expected 1 to {site.attention.heads})",
                fix="count heads from 1",
            )
        layer, index, frozen = site.attention, config.head - 1, config.frozen
        if layer.score.table is not None and config.kind == "shift":
            install_synthesizer_shift(layer, index, config.offset, config.tolerance, frozen=frozen)
        else:
            install(design_head(site, config), layer, index, frozen=frozen)


def design_head(site: AttentionSite, config: InitHeadConfig) -> Head:
    """Compute the matrices of a head from the positions at its layer; see the top of this file."""
    if site.position.combine is None:  # rotary; _rotary_head rejects other kinds
        return _rotary_head(site, config)
    if config.kind == "band":
        return _band_head(site, config)
    candidates = list(_candidates(site, config.offset))
    gaps = [smallest_gap(candidate, site, config.offset) for candidate in candidates]
    gap = max(gaps)
    head = candidates[gaps.index(gap)]
    if gap <= 0:
        raise UserError(
            f"model.init_heads: the normed positions of texts of {site.length} tokens cannot be "
            f"distinguished in layer {config.layer} with key width {head.key_width}",
            fix="use norm 'rms', which only scales positions, or a larger key width",
        )
    sharpness = required_sharpness(wrong_keys=site.length - 1, gap=gap, tolerance=config.tolerance)
    return replace(head, queries=head.queries * sharpness)


def _candidates(site: AttentionSite, offset: int) -> Iterator[Head]:
    """Yield shift heads of sharpness 1 that use all pairs that fit, half of them, a quarter, …

    Each head is yielded twice: as it is, and with `subtract_reference`.
    """
    basis, subspaces = site.basis(), site.subspaces()
    gaps = score_gaps(basis.frequencies, torch.arange(site.length))
    count = min(basis.pairs, (site.attention.score.key_width or basis.width) // 2)
    while count:
        plain = rotation_head(basis, offset, choose_pairs(gaps, count), 1.0, subspaces)
        yield plain
        yield subtract_reference(plain, subspaces.position, basis)
        count //= 2


def _band_head(site: AttentionSite, config: InitHeadConfig) -> Head:
    basis, subspaces = site.basis(), site.subspaces()
    plan = BandPlan(
        **site.plan_options(config),
        band=config.band,
        sharpness=config.sharpness,
        key_width=site.attention.score.key_width,
    )
    # The sharpness in a recipe refers to plain sinusoids, which the norm scales.
    plain = replace(site, norm=nn.Identity()).normed_positions()
    scale = float(site.normed_positions().square().mean() / plain.square().mean())
    sharpness = config.sharpness / scale
    head = rotation_head(basis, config.offset, band_pairs(plan), sharpness, subspaces)
    if isinstance(site.norm, nn.LayerNorm):
        head = subtract_reference(head, subspaces.position, basis)
    return head


def _rotary_head(site: AttentionSite, config: InitHeadConfig) -> Head:
    """Return a shift head for rotary positions."""
    options = site.plan_options(config)
    if config.kind != "shift":
        raise UserError(
            f"model.init_heads: kind {config.kind!r} does not support rotary positions (expected "
            "'shift')",
            fix="set its kind to 'shift', or model.position.kind to 'sinusoid'",
        )
    plan = ShiftPlan(**options, tolerance=config.tolerance)
    return rotary_shift_head(plan, site.position.width)


def subtract_reference(head: Head, subspace: range, basis: Sinusoids) -> Head:
    """Return a head that subtracts the sine of the lowest frequency from its other inputs."""
    slowest_pair = int(basis.frequencies.argmin())
    sine = 0 if basis.kind == "sinusoid" else 1  # a pair of `fourier` starts with the cosine
    reference = subspace.start + 2 * slowest_pair + sine

    def on_differences(matrix: Tensor) -> Tensor:
        """Return the matrix that applies `matrix` to the inputs minus the reference."""
        difference = matrix.clone()
        difference[:, reference] -= matrix[:, subspace.start : subspace.stop].sum(dim=1)
        return difference

    return replace(head, queries=on_differences(head.queries), keys=on_differences(head.keys))


def smallest_gap(head: Head, site: AttentionSite, offset: int) -> float:
    """Return the difference between target and best wrong score at the worst query."""
    inputs = site.normed_positions()
    scores = (inputs @ head.queries.T) @ (inputs @ head.keys.T).T
    positions = torch.arange(site.length)
    is_target = positions[:, None] - positions == offset
    visible = build_mask(site.mask_kind, positions[None], positions[None]).visible
    assert visible is not None
    target_scores = scores.masked_fill(~is_target, float("-inf")).amax(dim=-1)
    wrong_scores = scores.masked_fill(~visible[0, 0] | is_target, float("-inf")).amax(dim=-1)
    return float((target_scores - wrong_scores)[offset:].min())


def install(head: Head, layer: MultiHead, index: int, *, frozen: bool = False) -> None:
    """Write a head at `index`, counted from 0, into a layer whose heads may be wider.

    A head without values leaves W_V and W_O unchanged. A frozen head gets no gradient, and each
    forward pass in training mode restores its weights, since weight decay changes them.
    """
    if not 0 <= index < layer.heads:
        raise UserError(
            f"install: no head {index} (expected 0 to {layer.heads - 1})", fix="count heads from 0"
        )
    patches = layer.score.head_patches(head, index) + _value_patches(head, layer, index)
    _apply_patches(patches, layer, frozen)


def install_synthesizer_shift(
    layer: MultiHead, index: int, offset: int, tolerance: float, *, frozen: bool = False
) -> None:
    """Write a shift by `offset` into the table of a random synthesizer."""
    table = layer.score.table
    if table is None:
        raise UserError(
            "install: the score has no table (expected a random synthesizer)",
            fix="use `install` with a shift head",
        )
    length = table.shape[-1]
    sharpness = required_sharpness(wrong_keys=length - 1, gap=1.0, tolerance=tolerance)
    scores = sharpness * torch.eye(length).roll(offset, dims=0).tril(-offset)
    _apply_patches([WeightPatch(table, (index,), scores)], layer, frozen)


@torch.no_grad()
def write_patches(patches: Iterable[WeightPatch]) -> None:
    """Write the values of every patch into its parameter."""
    for patch in patches:
        patch.parameter[patch.index] = patch.values.to(patch.parameter.dtype)


def _apply_patches(patches: list[WeightPatch], layer: MultiHead, frozen: bool) -> None:
    write_patches(patches)
    if not frozen:
        return

    def zero_gradient(gradient: Tensor, index: tuple[slice | int, ...]) -> Tensor:
        gradient = gradient.clone()
        gradient[index] = 0.0
        return gradient

    for patch in patches:
        hook = partial(zero_gradient, index=patch.index)
        patch.parameter.register_hook(hook)  # type: ignore[no-untyped-call]
    layer.register_forward_pre_hook(lambda *_: write_patches(patches) if layer.training else None)


def _value_patches(head: Head, layer: MultiHead, index: int) -> list[WeightPatch]:
    """Return patches of W_V and W_O; none for a head without values."""
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
            f"{layer.heads} heads and {layer.kv_heads} value heads of width {width})",
            fix="increase attention.head_width, and leave out attention.kv_heads",
        )
    columns = slice(index * width, (index + 1) * width)
    output = pad_rows(head.output.T, width).T
    return [
        *projection_patches(layer.v_proj, layer.heads, index, head.values),
        WeightPatch(layer.out_proj.weight, (slice(None), columns), output),
    ]
