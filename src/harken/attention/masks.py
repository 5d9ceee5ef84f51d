"""Attention masks: boolean tensors T S, true where query i may attend to key t.

    bidirectional     every t
    causal            t <= i
    strictly_causal   t < i, as in `claims/lecture29.py`

Further restrictions are a window, |i - t| <= window, padding, and packed documents, in which a
query attends to keys of its own document. The scores of masked keys become minus infinity. The
causal mask of whole sequences is a flag, because fused kernels are faster without a tensor.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

MaskKind = Literal["bidirectional", "causal", "strictly_causal"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mask:
    """The mask `visible`. If it is None, all keys are visible, or with `causal` keys t <= i.

    With `causal`, the last query has the position of the last key.
    """

    visible: Bool[Tensor, "#B #k #T #S"] | None = None
    causal: bool = False


NO_MASK = Mask()
CAUSAL = Mask(causal=True)


def build_mask(
    mask_kind: MaskKind,
    query_positions: Int[Tensor, "#B T"],
    key_positions: Int[Tensor, "#B S"],
    *,
    window: int | None = None,
    present: Bool[Tensor, "B S"] | None = None,
    query_documents: Int[Tensor, "B T"] | None = None,
    key_documents: Int[Tensor, "B S"] | None = None,
) -> Mask:
    """Return the mask for these positions, which need not be consecutive (caches, packed rows).

    `present` is true at tokens that are not padding.
    """
    if mask_kind not in get_args(MaskKind):
        raise ValueError(f"mask_kind: expected one of {get_args(MaskKind)}, got {mask_kind!r}")
    queries, keys = query_positions[:, None, :, None], key_positions[:, None, None, :]
    visible = keys < queries if mask_kind == "strictly_causal" else keys <= queries
    if mask_kind == "bidirectional":
        visible = torch.ones_like(visible)
    if window is not None:
        visible = visible & ((queries - keys).abs() <= window)
    if present is not None:
        visible = visible & present[:, None, None, :]
    if query_documents is not None and key_documents is not None:
        visible = visible & (query_documents[:, None, :, None] == key_documents[:, None, None, :])
    return Mask(visible=visible)


def padding_mask(present: Bool[Tensor, "B S"] | None) -> Mask:
    """Return the mask that hides padding."""
    return NO_MASK if present is None else Mask(visible=present[:, None, None, :])


def dense_mask(
    mask: Mask, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "#B #k #T #S"]:
    """Return a mask of this many queries and keys as a boolean tensor."""
    if mask.visible is not None:
        return mask.visible
    visible = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return visible.tril(diagonal=keys - queries) if mask.causal else visible
