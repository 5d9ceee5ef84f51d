"""Write a head into a layer of attention: as its start, for good, or as a wish.

    initialise   the weights begin as designed and then learn
    freeze       no gradient reaches them, and what weight decay takes is put back before the next
                 pass of training
    regularise   the weights stay; the penalty, sum of (weight - designed)^2, is for the loss

A layer may be wider than the head, and zeros fill it; a narrower one is refused. A head without
values leaves what it carries as it was. By score:

    dot, scaled   W_Q (over the scale), W_K, their offsets where the layer has them
    merged        W~ = W_Q' W_K; it has no offsets
    synthesizer   random: a shift, straight into the table (`write_offset`); dense has no place
    additive, relative_product   refused: no product of the two tokens alone

A layer sees tokens behind its norm: the head must have been designed for those (`start.py`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from harken.attention.multihead import MultiHead
from harken.attention.scores import Merged, Product, Synthesized
from harken.design.head import Head
from harken.design.sharpness import enough
from harken.errors import UserError

Mode = Literal["initialise", "freeze", "regularise"]
Where = tuple[slice | int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Part of a parameter, and what is designed for it."""

    parameter: Tensor
    where: Where
    wanted: Tensor


def install(
    head: Head, layer: MultiHead, index: int, mode: Mode = "initialise"
) -> Callable[[], Float[Tensor, ""]]:
    """Into head `index` of a layer, counted from 0; returns the penalty of having left it."""
    return apply(patches(head, layer, index), layer, mode)


def write_offset(
    layer: MultiHead, index: int, offset: int, tolerance: float, mode: Mode = "initialise"
) -> Callable[[], Float[Tensor, ""]]:
    """A shift in the table of a random synthesizer, which has a score for every two places."""
    _check_index(layer, index)
    score = layer.score
    if not isinstance(score, Synthesized) or score.table is None:
        raise UserError(
            "install: found a score without a table of places, wanted a random synthesizer",
            fix="design a head and install that",
        )
    length = score.table.shape[-1]
    sharpness = enough(length - 1, 1.0, tolerance)
    # Row i has its one at column i - offset.
    wanted = sharpness * torch.eye(length).roll(offset, dims=0).tril(-offset)
    return apply([Patch(score.table, (index,), wanted)], layer, mode)


def apply(found: list[Patch], layer: MultiHead, mode: Mode) -> Callable[[], Float[Tensor, ""]]:
    """Write, and freeze if asked to; or only measure how far the weights are."""
    if mode != "regularise":
        write(found)
    if mode == "freeze":
        for patch in found:
            patch.parameter.register_hook(_still(patch.where))  # type: ignore[no-untyped-call]
        layer.register_forward_pre_hook(lambda *_: write(found) if layer.training else None)

    def penalty() -> Float[Tensor, ""]:
        gone = [
            (patch.parameter[patch.where] - patch.wanted.to(patch.parameter)).square().sum()
            for patch in found
        ]
        return torch.stack(gone).sum()

    return penalty


@torch.no_grad()
def write(found: Iterable[Patch]) -> None:
    """Every patch to its place."""
    for patch in found:
        patch.parameter[patch.where] = patch.wanted.to(patch.parameter)


def _still(where: Where) -> Callable[[Tensor], Tensor]:
    def mask(gradient: Tensor) -> Tensor:
        masked = gradient.clone()
        masked[where] = 0.0
        return masked

    return mask


def patches(head: Head, layer: MultiHead, index: int) -> list[Patch]:
    """What to write where; nothing is written yet."""
    _check_index(layer, index)
    score = layer.score
    if isinstance(score, Product):
        found = _pair(head, score, index)
    elif isinstance(score, Merged):
        found = _merged(head, score, index)
    else:
        reasons = {
            "Additive": "score 'additive' squeezes the sum of query and key, "
            "and a product of the two cannot be written with it",
            "Synthesized": "score 'synthesizer' compares no query with any key",
            "RelativeProduct": "score 'relative_product' adds what its queries say of distances",
        }
        name = type(score).__name__
        raise UserError(
            f"install: {reasons.get(name, f'{name} is no product of two tokens')}",
            fix="use score 'dot', 'scaled' or 'merged' (a random synthesizer holds a shift)",
        )
    return found + _carried(head, layer, index)


def _check_index(layer: MultiHead, index: int) -> None:
    heads = layer.heads
    if not 0 <= index < heads:
        raise UserError(
            f"install: found head {index}, wanted 0 to {heads - 1}", fix="count heads from 0"
        )
    if not isinstance(layer.score, Merged | Synthesized) and layer.groups != heads:
        raise UserError(
            f"install: found {heads} heads that share {layer.groups} keys, wanted keys of its own",
            fix="leave out attention.key_value_heads",
        )


def _pair(head: Head, score: Product, index: int) -> list[Patch]:
    room = score.to_queries.out_features // score.heads
    _fits(head, score.to_queries.in_features)
    if head.key_width > room:
        raise UserError(
            f"install: found a head of key width {head.key_width}, "
            f"wanted at most the layer's {room}",
            fix="design it with that key width",
        )
    rows = slice(index * room, (index + 1) * room)
    found = []
    for linear, matrix, offset, scale in (
        (score.to_queries, head.queries, head.query_offset, score.scale),
        (score.to_keys, head.keys, head.key_offset, 1.0),
    ):
        found.append(Patch(linear.weight, (rows,), _filled(matrix / scale, room)))
        if linear.bias is not None:
            wanted = matrix.new_zeros(head.key_width) if offset is None else offset / scale
            found.append(Patch(linear.bias, (rows,), _filled(wanted, room)))
        elif offset is not None:
            raise UserError(
                "install: found a layer without offsets, "
                "wanted them for a query or key that is the same at every place",
                fix="set attention.bias = true, or fold them into a direction (`steady`)",
            )
    return found


def _merged(head: Head, score: Merged, index: int) -> list[Patch]:
    _fits(head, score.unscaled.shape[1])
    if head.query_offset is not None or head.key_offset is not None:
        raise UserError(
            "install: found a head with offsets, and score 'merged' has none",
            fix="use score 'scaled' with attention.bias = true, or fold them in (`steady`)",
        )
    return [Patch(score.unscaled, (index,), head.queries.T @ head.keys / score.scale)]


def _carried(head: Head, layer: MultiHead, index: int) -> list[Patch]:
    """W_V and W_O, for a head that says what it carries."""
    if head.values is None or head.output is None:
        return []
    if layer.to_values is None or layer.join is None:
        raise UserError(
            "install: found a layer without value_matrix or output_matrix, "
            "wanted both for a head that says what it carries",
            fix="leave the two switched on, or design the head without values",
        )
    heads = layer.heads
    room = layer.to_values.out_features // layer.groups
    if layer.groups != heads or head.values.shape[0] > room:
        raise UserError(
            f"install: found values {head.values.shape[0]} wide for a layer of {layer.groups} "
            f"times {room} values and {heads} heads, wanted room of its own",
            fix="set attention.head_width, and leave out attention.key_value_heads",
        )
    part = slice(index * room, (index + 1) * room)
    found = [
        Patch(layer.to_values.weight, (part,), _filled(head.values, room)),
        Patch(layer.join.weight, (slice(None), part), _filled(head.output.T, room).T),
    ]
    if layer.to_values.bias is not None:
        found.append(Patch(layer.to_values.bias, (part,), head.values.new_zeros(room)))
    return found


def _fits(head: Head, width: int) -> None:
    if head.queries.shape[1] != width:
        raise UserError(
            f"install: found a head for tokens of width {head.queries.shape[1]}, "
            f"wanted the layer's {width}",
            fix="design it for this width, with its positions in their part",
        )


def _filled(matrix: Tensor, rows: int) -> Tensor:
    """Zeros below, up to so many rows."""
    return torch.cat((matrix, matrix.new_zeros(rows - matrix.shape[0], *matrix.shape[1:])))
