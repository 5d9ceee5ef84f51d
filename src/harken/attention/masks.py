"""Who may look at whom.

A mask is a table of truth values over (query, key): True where the query may look. Masked scores
are set to minus infinity, never to a large finite number, so that nothing leaks. The common case,
each token seeing itself and all before it, is carried as a flag: kernels have a faster way for it.

    any      every key                      causal   t <= i
    strict   t < i (the lecture's)          window   at most so many steps away, with any of these

Padding and packed documents are two more conditions on the same table.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

MaskKind = Literal["any", "causal", "strict"]


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
    """Compare positions, not slots, so that a cache or a packed row needs no case of its own."""
    queries, keys = query_positions[:, None, :, None], key_positions[:, None, None, :]
    if order == "causal":
        visible = keys <= queries
    elif order == "strict":
        visible = keys < queries
    elif order == "any":
        visible = torch.ones_like(keys <= queries)
    else:
        raise ValueError(f"order: unknown value {order!r} (expected 'any', 'causal' or 'strict')")
    if window is not None:
        visible = visible & ((queries - keys).abs() <= window)
    if present is not None:
        visible = visible & present[:, None, None, :]
    if query_documents is not None and key_documents is not None:
        visible = visible & (query_documents[:, None, :, None] == key_documents[:, None, None, :])
    return Mask(visible=visible)


def padding_mask(present: Bool[Tensor, "B S"] | None) -> Mask:
    """Every key that is no padding."""
    return NO_MASK if present is None else Mask(visible=present[:, None, None, :])


def dense_mask(
    mask: Mask, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "#B 1 #T S"]:
    """The table in full, for kernels that need to see it."""
    if mask.visible is not None:
        return mask.visible
    everything = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return everything.tril(diagonal=keys - queries) if mask.causal else everything
