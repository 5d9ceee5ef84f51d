"""Write a head into an attention layer.

    initialize   the weights start as designed and are trained
    freeze       the weights get no gradient, and what weight decay changes is restored before the
                 next training pass
    regularize   the weights stay; add the penalty, sum of (weight - designed)^2, to the loss

A layer may be wider than the head and is padded with zeros; a narrower one is rejected. A head
without values leaves W_V and W_O unchanged. Each score defines how it holds a head
(`Score.install`). A layer reads tokens after its norm: design the head for these (`start.py`).
"""

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head, Patch, pad_rows
from harken.attention.multihead import MultiHead
from harken.design.sharpness import required_sharpness
from harken.errors import UserError

Mode = Literal["initialize", "freeze", "regularize"]
Penalty = Callable[[], Float[Tensor, ""]]


def install(head: Head, layer: MultiHead, index: int, mode: Mode = "initialize") -> Penalty:
    """Write into head `index` of a layer, counted from 0; returns the penalty."""
    _check_index(layer, index)
    patches = layer.score.install(head, index) + _value_patches(head, layer, index)
    return apply(patches, layer, mode)


def install_offset(
    layer: MultiHead, index: int, offset: int, tolerance: float, mode: Mode = "initialize"
) -> Penalty:
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
    return apply([Patch(table, (index,), scores)], layer, mode)


def apply(patches: list[Patch], layer: MultiHead, mode: Mode) -> Penalty:
    """Write patches unless the mode is `regularize`; returns the penalty."""
    if mode != "regularize":
        write(patches)
    if mode == "freeze":
        for patch in patches:
            patch.parameter.register_hook(_zero_gradient(patch.where))  # type: ignore[no-untyped-call]
        layer.register_forward_pre_hook(lambda *_: write(patches) if layer.training else None)

    def penalty() -> Float[Tensor, ""]:
        distances = [
            (patch.parameter[patch.where] - patch.values.to(patch.parameter)).square().sum()
            for patch in patches
        ]
        return torch.stack(distances).sum()

    return penalty


@torch.no_grad()
def write(patches: Iterable[Patch]) -> None:
    """Copy the values of every patch into its parameter."""
    for patch in patches:
        patch.parameter[patch.where] = patch.values.to(patch.parameter)


def _zero_gradient(where: tuple[slice | int, ...]) -> Callable[[Tensor], Tensor]:
    def mask(gradient: Tensor) -> Tensor:
        masked = gradient.clone()
        masked[where] = 0.0
        return masked

    return mask


def _check_index(layer: MultiHead, index: int) -> None:
    if not 0 <= index < layer.heads:
        raise UserError(
            f"install: no head {index} (expected 0 to {layer.heads - 1})", fix="count heads from 0"
        )


def _value_patches(head: Head, layer: MultiHead, index: int) -> list[Patch]:
    """W_V and W_O, for a head with values."""
    if head.values is None or head.output is None:
        return []
    if layer.v_proj is None or layer.out_proj is None:
        raise UserError(
            "install: the layer has no v_proj or no out_proj (a head with values needs both)",
            fix="enable both, or design the head without values",
        )
    room = layer.v_proj.out_features // layer.kv_heads
    if layer.kv_heads != layer.heads or head.values.shape[0] > room:
        raise UserError(
            f"install: values of width {head.values.shape[0]} do not fit (the layer has "
            f"{layer.kv_heads} times {room} values for {layer.heads} heads)",
            fix="set attention.head_width, and leave out attention.kv_heads",
        )
    part = slice(index * room, (index + 1) * room)
    patches = [
        Patch(layer.v_proj.weight, (part,), pad_rows(head.values, room)),
        Patch(layer.out_proj.weight, (slice(None), part), pad_rows(head.output.T, room).T),
    ]
    if layer.v_proj.bias is not None:
        patches.append(Patch(layer.v_proj.bias, (part,), head.values.new_zeros(room)))
    return patches
