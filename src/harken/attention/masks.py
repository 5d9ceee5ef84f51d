"""Which keys each query may attend to.

A mask is a boolean table over (query, key), true where the query may attend to the key. Masked
scores become minus infinity, never a large finite number, so that nothing leaks. The causal mask of
whole rows is a flag, because kernels are faster without a table.

    any      every key                      causal   t <= i
    strict   t < i (the lecture's)          window   at most so many steps away, with any of these

Padding and packed documents are two more conditions on the same table.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

MaskKind = Literal["bidirectional", "causal", "strictly_causal"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mask:
    """`visible` is the table; where it is None, `causal` says whether only order matters."""

    visible: Bool[Tensor, "#B 1 #T S"] | None = None
    causal: bool = False


NO_MASK = Mask()
CAUSAL = Mask(causal=True)


def build_mask(
    order: MaskKind,
    query_positions: Int[Tensor, "#B T"],
    key_positions: Int[Tensor, "#B S"],
    *,
    window: int | None = None,
    present: Bool[Tensor, "B S"] | None = None,
    query_documents: Int[Tensor, "B T"] | None = None,
    key_documents: Int[Tensor, "B S"] | None = None,
) -> Mask:
    """Build a mask from positions, so that caches and packed rows need no special case."""
    queries, keys = query_positions[:, None, :, None], key_positions[:, None, None, :]
    if order == "causal":
        visible = keys <= queries
    elif order == "strictly_causal":
        visible = keys < queries
    elif order == "bidirectional":
        visible = torch.ones_like(keys <= queries)
    else:
        raise ValueError(
            f"order: expected 'bidirectional', 'causal' or 'strictly_causal', got {order!r}"
        )
    if window is not None:
        visible = visible & ((queries - keys).abs() <= window)
    if present is not None:
        visible = visible & present[:, None, None, :]
    if query_documents is not None and key_documents is not None:
        visible = visible & (query_documents[:, None, :, None] == key_documents[:, None, None, :])
    return Mask(visible=visible)


def padding_mask(present: Bool[Tensor, "B S"] | None) -> Mask:
    """Return the mask of all keys except padding."""
    return NO_MASK if present is None else Mask(visible=present[:, None, None, :])


def dense_mask(
    mask: Mask, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "#B 1 #T S"]:
    """Return the boolean table of a mask."""
    if mask.visible is not None:
        return mask.visible
    everything = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return everything.tril(diagonal=keys - queries) if mask.causal else everything
