"""Connectionist temporal classification (CTC).

    P(text) = sum over paths of  product over t of  softmax(W h_t + b)[path_t]

A path has a symbol or the blank at every frame. Its text is the path with repeated symbols merged
and blanks removed. So n symbols need n frames, and one more between equal neighbors.

The blank is one of the V symbols, such as padding, that no text contains. Padding of frames and
targets is on the right. The loss overwrites the logits with their gradient, like cross_entropy_:
PyTorch's holds four tensors of their size.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.layers.embedding import OutputLinear
from harken.layers.losses import GPU_ELEMENTS, save_in_place, saved_in_place
from harken.models.initialize import initialize
from harken.models.inputs import Present

Targets = Int[Tensor, "B text"]
TargetPresent = Bool[Tensor, "B text"]


class CTC(nn.Module):
    """States B T J -> log-probabilities B T V."""

    def __init__(self, width: int, symbols: int, *, blank: int, seed: int) -> None:
        super().__init__()
        assert 0 <= blank < symbols, f"expected a blank below {symbols}, got {blank}"
        self.blank = blank
        self.ctc_head = OutputLinear(width, symbols)
        initialize(self, 1, seed)

    def forward(self, states: Float[Tensor, "B T J"]) -> Float[Tensor, "B T V"]:
        """Return log-probabilities, for search."""
        return self.logits(states).log_softmax(dim=-1)

    def logits(self, states: Float[Tensor, "B T J"]) -> Float[Tensor, "B T V"]:
        """Return the logits in at least float32, since the loss sums over many frames."""
        logits: Tensor = self.ctc_head(states)
        return logits.float() if logits.dtype.itemsize < 4 else logits


def fits(present: Present, targets: Targets, target_present: TargetPresent) -> Bool[Tensor, "B"]:
    """Return which rows have enough frames for their target."""
    repeated = (targets[:, 1:] == targets[:, :-1]) & target_present[:, 1:]
    return target_present.sum(dim=1) + repeated.sum(dim=1) <= present.sum(dim=1)


def ctc_loss(
    logits: Float[Tensor, "B T V"],
    present: Present,
    targets: Targets,
    target_present: TargetPresent,
    *,
    blank: int,
) -> Float[Tensor, ""]:
    """Return the sum of -log P of the targets of all rows that `fits`; `logits` are overwritten."""
    assert not ((targets == blank) & target_present).any(), "targets must not contain the blank"
    rows = fits(present, targets, target_present)
    if not rows.all():
        logits, present, targets, target_present = (
            tensor[rows] for tensor in (logits, present, targets, target_present)
        )
    if logits.numel() == 0:
        return logits.sum()
    lengths = present.sum(dim=1), target_present.sum(dim=1)
    losses: Tensor = _CTCLoss.apply(logits, targets, *lengths, blank)[0]  # type: ignore[no-untyped-call]
    return losses.sum()


CTC_ELEMENTS = 1 << 20  # logits that are processed at a time on a CPU: some megabytes


class _CTCLoss(torch.autograd.Function):
    """Computes the losses of some rows at a time, together with their gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, frames: Tensor, symbols: Tensor, blank: int
    ) -> Any:
        needs_grad, losses = ctx.needs_input_grad[0], []
        elements = CTC_ELEMENTS if logits.device.type == "cpu" else GPU_ELEMENTS
        count = max(1, elements // max(1, logits[0].numel()))
        for start in range(0, len(logits), count):
            rows = slice(start, start + count)
            log_probs = logits[rows].log_softmax(dim=-1).requires_grad_(needs_grad)
            with torch.set_grad_enabled(needs_grad):
                loss = F.ctc_loss(
                    log_probs.transpose(0, 1),
                    targets[rows],
                    input_lengths=frames[rows],
                    target_lengths=symbols[rows],
                    blank=blank,
                    reduction="none",
                )
            losses.append(loss.detach())
            if needs_grad:
                # It sums to zero over each frame, so it is also the gradient of the logits.
                (logits[rows],) = torch.autograd.grad(loss, log_probs, torch.ones_like(loss))
        save_in_place(ctx, logits)
        return torch.cat(losses), logits

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Any) -> Any:
        (gradient,) = saved_in_place(ctx)
        return gradient.mul_(upstream[:, None, None]), None, None, None, None
