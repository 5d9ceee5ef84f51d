"""Cross-entropy in place, for large vocabularies.

    loss_n = -(1 - e) log p_n[target] - e mean over V of log p_n,     p = softmax(logits)
    d loss_n / d logits = p_n - (1 - e) [target] - e / V

PyTorch's cross-entropy holds three tensors of size N V. Here log-probabilities overwrite the
logits, and the gradient overwrites both, so the backward pass can run only once. Autograd raises
its usual in-place error if another operation needs the logits.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Elements processed at a time: as many as fit a CPU's cache; on a GPU more, for fewer launches.
CPU_ELEMENTS, GPU_ELEMENTS = 1 << 18, 1 << 24


def cross_entropy_(
    logits: Float[Tensor, "N V"], targets: Int[Tensor, "N"], smoothing: float = 0.0
) -> Float[Tensor, "N"]:
    """Return the loss of every row in nats; `logits` are overwritten."""
    precise = logits.float() if logits.dtype.itemsize < 4 else logits
    losses: Tensor = _CrossEntropy.apply(precise, targets, smoothing)[0]  # type: ignore[no-untyped-call]
    return losses


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Any:
        for part in _split(logits, logits):
            part.copy_(part.log_softmax(dim=-1))
        losses = logits.gather(1, targets[:, None])[:, 0].mul_(smoothing - 1.0)
        if smoothing:
            losses -= logits.mean(dim=1).mul_(smoothing)
        ctx.smoothing = smoothing
        save_in_place(ctx, logits, targets)
        return losses, logits

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Any) -> Any:
        log_probs, targets = saved_in_place(ctx)
        tensors = (log_probs, upstream[:, None], targets[:, None])
        parts = (_split(tensor, log_probs) for tensor in tensors)
        for part, scale, target in zip(*parts, strict=True):
            part.exp_()
            if ctx.smoothing:
                part -= ctx.smoothing / log_probs.shape[1]
            part.scatter_add_(1, target, part.new_full(target.shape, ctx.smoothing - 1.0))
            part *= scale
        return log_probs, None, None


def save_in_place(ctx: Any, logits: Tensor, *others: Tensor) -> None:
    """Save the logits, which a forward pass has overwritten, and tell autograd."""
    ctx.mark_dirty(logits)
    ctx.mark_non_differentiable(logits)
    ctx.set_materialize_grads(False)  # a gradient of zeros would be another copy
    ctx.save_for_backward(logits, *others)
    ctx.spent = False


def saved_in_place(ctx: Any) -> tuple[Tensor, ...]:
    """Return the saved tensors once, since the backward pass overwrites them."""
    assert not ctx.spent, "the gradient overwrites the logits: only one backward pass is possible"
    ctx.spent = True
    return tuple(ctx.saved_tensors)


def _split(tensor: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """Split the rows of a tensor into parts for which the logits are not too large."""
    elements = CPU_ELEMENTS if logits.device.type == "cpu" else GPU_ELEMENTS
    return torch.split(tensor, max(1, elements // max(1, logits.shape[1])))
