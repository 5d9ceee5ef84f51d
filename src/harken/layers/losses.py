"""Cross-entropy in place, for large vocabularies.

    loss_n = -(1 - e) log p_n[target] - e mean over V of log p_n,     p = softmax(logits)
    d loss_n / d logits = p_n - (1 - e) one_hot(target) - e / V

where e is the label smoothing. PyTorch's cross-entropy allocates three tensors N V. Here the
log-probabilities overwrite the logits, and the gradient overwrites the log-probabilities, so only
one backward pass is possible. Autograd raises its usual in-place error if another operation needs
the logits.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Elements processed at a time: on a CPU, what fits its cache; on a GPU more, for fewer launches.
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
        for chunk in _split(logits, logits):
            chunk.copy_(chunk.log_softmax(dim=-1))
        losses = logits.gather(1, targets[:, None])[:, 0].mul_(smoothing - 1.0)
        if smoothing:
            losses -= logits.mean(dim=1).mul_(smoothing)
        ctx.smoothing = smoothing
        save_in_place(ctx, logits, targets)
        return losses, logits

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor, _: Any) -> Any:
        log_probs, targets = saved_in_place(ctx)
        tensors = (log_probs, grad_losses[:, None], targets[:, None])
        chunks = (_split(tensor, log_probs) for tensor in tensors)
        for chunk, grad_loss, target in zip(*chunks, strict=True):
            chunk.exp_()
            if ctx.smoothing:
                chunk -= ctx.smoothing / log_probs.shape[1]
            chunk.scatter_add_(1, target, chunk.new_full(target.shape, ctx.smoothing - 1.0))
            chunk *= grad_loss
        return log_probs, None, None


def save_in_place(ctx: Any, logits: Tensor, *others: Tensor) -> None:
    """Save the overwritten logits for the backward pass and mark them as changed in place."""
    ctx.mark_dirty(logits)
    ctx.mark_non_differentiable(logits)
    ctx.set_materialize_grads(False)  # a gradient of zeros would be another copy
    ctx.save_for_backward(logits, *others)
    ctx.overwritten = False


def saved_in_place(ctx: Any) -> tuple[Tensor, ...]:
    """Return the saved tensors; a second call fails, because the backward pass overwrites them."""
    assert not ctx.overwritten, (
        "the gradient overwrites the logits: only one backward pass is possible"
    )
    ctx.overwritten = True
    return tuple(ctx.saved_tensors)


def _split(tensor: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """Split a tensor with one row per row of `logits`, so that a chunk of logits fits the cache."""
    elements = CPU_ELEMENTS if logits.device.type == "cpu" else GPU_ELEMENTS
    return torch.split(tensor, max(1, elements // max(1, logits.shape[1])))
