"""Cross-entropy of a wide vocabulary with one copy of its scores.

    loss_n = -(1 - e) log p_n[target] - e mean over V of log p_n,     p = softmax(scores)
    d loss_n / d scores = p_n - (1 - e) [target] - e / V

PyTorch's own holds three tensors of their size at its peak: the logarithms and two gradients. Here
logarithms are written over scores and the gradient over logarithms: a read-out over N V needs N V.
So the scores are gone afterwards, and the backward pass can be run once. Autograd knows: whoever
needed the scores for a gradient of its own gets PyTorch's error about a tensor changed in place.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Numbers that are worked on at a time: of a CPU as many as stay in its cache, else few launches.
CACHED, MANY = 1 << 18, 1 << 24


def cross_entropy_(
    scores: Float[Tensor, "N V"], targets: Int[Tensor, "N"], smoothing: float = 0.0
) -> Float[Tensor, "N"]:
    """Nats of every row; `scores` must be nobody else's, and are overwritten."""
    precise = scores.float() if scores.dtype.itemsize < 4 else scores
    losses: Tensor = _Entropy.apply(precise, targets, smoothing)[0]  # type: ignore[no-untyped-call]
    return losses


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, smoothing: float) -> Any:
        for part in _parts(scores)(scores):
            part.copy_(part.log_softmax(dim=-1))
        losses = scores.gather(1, targets[:, None])[:, 0].mul_(smoothing - 1.0)
        if smoothing:
            losses -= scores.mean(dim=1).mul_(smoothing)
        ctx.smoothing = smoothing
        save_in_place(ctx, scores, targets)
        return losses, scores

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Any) -> Any:
        logs, targets = saved_in_place(ctx)
        for part, rows, wanted in zip(
            *map(_parts(logs), (logs, upstream[:, None], targets[:, None])), strict=True
        ):
            part.exp_()
            if ctx.smoothing:
                part -= ctx.smoothing / logs.shape[1]
            part.scatter_add_(1, wanted, part.new_full(wanted.shape, ctx.smoothing - 1.0))
            part *= rows
        return logs, None, None


def save_in_place(ctx: Any, scores: Tensor, *others: Tensor) -> None:
    """Tell autograd that a forward pass has written over the scores, and keep them."""
    ctx.mark_dirty(scores)
    ctx.mark_non_differentiable(scores)
    ctx.set_materialize_grads(False)  # or its zeros would be a copy of their own
    ctx.save_for_backward(scores, *others)
    ctx.spent = False


def saved_in_place(ctx: Any) -> tuple[Tensor, ...]:
    """What was kept, once: the backward pass may write over it again."""
    assert not ctx.spent, "the gradient stands where the scores stood: one backward pass"
    ctx.spent = True
    kept: tuple[Tensor, ...] = ctx.saved_tensors
    return kept


def _parts(scores: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Cuts tensors with as many rows as the scores have."""
    together = CACHED if scores.device.type == "cpu" else MANY
    rows = max(1, together // max(1, scores.shape[1]))
    return lambda one: torch.split(one, rows)
