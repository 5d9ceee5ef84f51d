"""Connectionist temporal classification (CTC).

    P(text) = sum over paths of this text of  product over t of  softmax(W h_t + b)[path_t]

A path has one of the V tokens at every frame. Its text is the path with repeated tokens merged and
blanks removed; the blank is a token that no text contains, such as padding. A text needs a frame
per token, and one more between two equal tokens.

Frames and targets are padded on the right. To save memory, the loss overwrites the logits with
their gradient, like `cross_entropy_`, and calls `F.ctc_loss`, which holds four tensors of the size
of its input, for a few rows at a time.
"""

from collections.abc import Sequence
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
    """CTC head: states B T J -> log-probabilities B T V."""

    def __init__(self, width: int, vocabulary: int, *, blank: int, seed: int) -> None:
        super().__init__()
        assert 0 <= blank < vocabulary, f"blank: expected 0 to {vocabulary - 1}, got {blank}"
        self.blank = blank
        self.ctc_head = OutputLinear(width, vocabulary)
        initialize(self, 1, seed)

    def forward(self, states: Float[Tensor, "B T J"]) -> Float[Tensor, "B T V"]:
        return self.logits(states).log_softmax(dim=-1)

    def logits(self, states: Float[Tensor, "B T J"]) -> Float[Tensor, "B T V"]:
        """Return the logits in at least float32, since the loss sums over many frames."""
        logits: Tensor = self.ctc_head(states)
        return logits.float() if logits.dtype.itemsize < 4 else logits


def has_enough_frames(
    present: Present, targets: Targets, target_present: TargetPresent
) -> Bool[Tensor, "B"]:
    """Return for each row whether a path of its target exists."""
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
    """Return -log P of the targets, summed over rows with enough frames; overwrites `logits`."""
    assert not ((targets == blank) & target_present).any(), "targets must not contain the blank"
    rows = has_enough_frames(present, targets, target_present)
    if not rows.all():
        logits, present, targets, target_present = (
            tensor[rows] for tensor in (logits, present, targets, target_present)
        )
    if logits.numel() == 0:
        return logits.sum()
    lengths = present.sum(dim=1), target_present.sum(dim=1)
    losses: Tensor = _CTCLoss.apply(logits, targets, *lengths, blank)[0]  # type: ignore[no-untyped-call]
    return losses.sum()


def ctc_log_probability(
    log_probs: Float[Tensor, "T V"], tokens: Sequence[int], *, blank: int
) -> Float[Tensor, "1 1"]:
    """Return log P of the tokens for one row; -inf if there are too few frames."""
    targets = torch.tensor([tokens], dtype=torch.long, device=log_probs.device)
    lengths = torch.tensor([len(log_probs)]), torch.tensor([len(tokens)])
    loss = F.ctc_loss(log_probs[:, None], targets, *lengths, blank=blank, reduction="none")
    return -loss[:, None]


CTC_ELEMENTS = 1 << 20  # logits per chunk on a CPU, 4 MB in float32


class _CTCLoss(torch.autograd.Function):
    """Compute losses and gradients in the forward pass, a chunk of rows at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        input_lengths: Tensor,
        target_lengths: Tensor,
        blank: int,
    ) -> Any:
        needs_grad, losses = ctx.needs_input_grad[0], []
        elements = CTC_ELEMENTS if logits.device.type == "cpu" else GPU_ELEMENTS
        chunk = max(1, elements // max(1, logits[0].numel()))
        for start in range(0, len(logits), chunk):
            rows = slice(start, start + chunk)
            log_probs = logits[rows].log_softmax(dim=-1).requires_grad_(needs_grad)
            with torch.set_grad_enabled(needs_grad):
                loss = F.ctc_loss(
                    log_probs.transpose(0, 1),
                    targets[rows],
                    input_lengths=input_lengths[rows],
                    target_lengths=target_lengths[rows],
                    blank=blank,
                    reduction="none",
                )
            losses.append(loss.detach())
            if needs_grad:
                # PyTorch's gradient of the log-probabilities sums to zero over the tokens, so it is
                # also the gradient of the logits.
                (logits[rows],) = torch.autograd.grad(loss, log_probs, torch.ones_like(loss))
        save_in_place(ctx, logits)
        return torch.cat(losses), logits

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor, _: Any) -> Any:
        (gradient,) = saved_in_place(ctx)
        return gradient.mul_(grad_losses[:, None, None]), None, None, None, None
