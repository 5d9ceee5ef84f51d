"""Write a head into a layer of attention: as its start, for good, or as a wish.

    initialize   the weights begin as designed and then learn
    freeze       no gradient reaches them, and what weight decay takes is put back before the next
                 pass of training
    regularize   the weights stay; the penalty, sum of (weight - designed)^2, is for the loss

A layer may be wider than the head, and zeros fill it; a narrower one is refused. A head without
values leaves what it carries as it was. Each score says how it holds a head (`Score.install`).

A layer sees tokens behind its norm: the head must have been designed for those (`start.py`).
"""

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.head import Head, Patch, pad_rows
from harken.attention.multihead import MultiHead
from harken.design.sharpness import enough
from harken.errors import UserError

Mode = Literal["initialize", "freeze", "regularize"]


def install(
    head: Head, layer: MultiHead, index: int, mode: Mode = "initialize"
) -> Callable[[], Float[Tensor, ""]]:
    """Into head `index` of a layer, counted from 0; returns the penalty of having left it."""
    return apply(patches(head, layer, index), layer, mode)


def write_offset(
    layer: MultiHead, index: int, offset: int, tolerance: float, mode: Mode = "initialize"
) -> Callable[[], Float[Tensor, ""]]:
    """A shift in the table of a random synthesizer, which has a score for every two places."""
    _check_index(layer, index)
    table = layer.score.table
    if table is None:
        raise UserError(
            "install: the score has no table of positions (expected a random synthesizer)",
            fix="design a head and install that",
        )
    length = table.shape[-1]
    sharpness = enough(length - 1, 1.0, tolerance)
    # Row i has its one at column i - offset.
    wanted = sharpness * torch.eye(length).roll(offset, dims=0).tril(-offset)
    return apply([Patch(table, (index,), wanted)], layer, mode)


def apply(found: list[Patch], layer: MultiHead, mode: Mode) -> Callable[[], Float[Tensor, ""]]:
    """Write, and freeze if asked to; or only measure how far the weights are."""
    if mode != "regularize":
        write(found)
    if mode == "freeze":
        for patch in found:
            patch.parameter.register_hook(_still(patch.where))  # type: ignore[no-untyped-call]
        layer.register_forward_pre_hook(lambda *_: write(found) if layer.training else None)

    def penalty() -> Float[Tensor, ""]:
        gone = [
            (patch.parameter[patch.where] - patch.values.to(patch.parameter)).square().sum()
            for patch in found
        ]
        return torch.stack(gone).sum()

    return penalty


@torch.no_grad()
def write(found: Iterable[Patch]) -> None:
    """Every patch to its place."""
    for patch in found:
        patch.parameter[patch.where] = patch.values.to(patch.parameter)


def _still(where: tuple[slice | int, ...]) -> Callable[[Tensor], Tensor]:
    def mask(gradient: Tensor) -> Tensor:
        masked = gradient.clone()
        masked[where] = 0.0
        return masked

    return mask


def patches(head: Head, layer: MultiHead, index: int) -> list[Patch]:
    """What to write where; nothing is written yet."""
    _check_index(layer, index)
    return layer.score.install(head, index) + _carried(head, layer, index)


def _check_index(layer: MultiHead, index: int) -> None:
    heads = layer.heads
    if not 0 <= index < heads:
        raise UserError(
            f"install: found head {index}, wanted 0 to {heads - 1}", fix="count heads from 0"
        )


def _carried(head: Head, layer: MultiHead, index: int) -> list[Patch]:
    """W_V and W_O, for a head that says what it carries."""
    if head.values is None or head.output is None:
        return []
    if layer.v_proj is None or layer.out_proj is None:
        raise UserError(
            "install: found a layer without value_matrix or output_matrix, "
            "wanted both for a head that says what it carries",
            fix="leave the two switched on, or design the head without values",
        )
    heads = layer.heads
    room = layer.v_proj.out_features // layer.kv_heads
    if layer.kv_heads != heads or head.values.shape[0] > room:
        raise UserError(
            f"install: found values {head.values.shape[0]} wide for a layer of {layer.kv_heads} "
            f"times {room} values and {heads} heads, wanted room of its own",
            fix="set attention.head_width, and leave out attention.key_value_heads",
        )
    part = slice(index * room, (index + 1) * room)
    found = [
        Patch(layer.v_proj.weight, (part,), pad_rows(head.values, room)),
        Patch(layer.out_proj.weight, (slice(None), part), pad_rows(head.output.T, room).T),
    ]
    if layer.v_proj.bias is not None:
        found.append(Patch(layer.v_proj.bias, (part,), head.values.new_zeros(room)))
    return found
