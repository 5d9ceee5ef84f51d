"""Connectionist temporal classification: one symbol a frame, all alignments of a text at once.

    P(text) = sum over paths of  product over t of  softmax(W h_t + b)[path_t]

A path has a symbol or the blank at every frame; it says a text when its repeated symbols are taken
once and its blanks dropped. So n symbols need n frames, and one more wherever two neighbors are
equal: only a blank tells them from one symbol that lasts.

The loss takes scores and leaves their gradient where they stood, as `layers/losses.py` does: with
a wide vocabulary the scores of a batch are the largest thing there is, and PyTorch's own loss holds
four of them.

The blank is one of the V symbols, whichever no text contains: a padding or an end symbol will do,
and a decoder can then share the numbers of the rest. Searching for texts is in `decode/`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.layers.losses import MANY, save_in_place, saved_in_place
from harken.layers.output import OutputLinear
from harken.models.initialize import initialize


@dataclass(frozen=True, kw_only=True, slots=True)
class CTCConfig:
    """The read-out of an encoder's states."""

    dropout: float = bounded(0.0, at_least=0.0, below=1.0)  # of the states, in training

    def build(self, width: int, symbols: int, *, blank: int, seed: int) -> "CTC":
        return CTC(self, width, symbols, blank=blank, seed=seed)


class CTC(nn.Module):
    """States B T J -> log-probabilities B T V."""

    def __init__(
        self, config: CTCConfig, width: int, symbols: int, *, blank: int, seed: int
    ) -> None:
        super().__init__()
        assert 0 <= blank < symbols, f"blank {blank} is none of {symbols} symbols"
        self.blank = blank
        self.dropout = Dropout(config.dropout)
        self.ctc_head = OutputLinear(width, symbols)
        initialize(self, 1, seed)

    def forward(self, states: Float[Tensor, "B T J"]) -> Float[Tensor, "B T V"]:
        """For a search; in training the loss normalizes."""
        return self.logits(states).log_softmax(dim=-1)

    def logits(self, states: Float[Tensor, "B T J"]) -> Float[Tensor, "B T V"]:
        """In single precision at the least: a sum over a thousand frames needs the bits."""
        logits: Tensor = self.ctc_head(self.dropout(states))
        return logits.float() if logits.dtype.itemsize < 4 else logits


def fits(
    present: Bool[Tensor, "B T"], targets: Int[Tensor, "B text"], written: Bool[Tensor, "B text"]
) -> Bool[Tensor, "B"]:
    """Rows with frames enough for their target; one that has too few is said by no path."""
    repeated = (targets[:, 1:] == targets[:, :-1]) & written[:, 1:]
    return written.sum(dim=1) + repeated.sum(dim=1) <= present.sum(dim=1)


def ctc_loss(
    scores: Float[Tensor, "B T V"],
    present: Bool[Tensor, "B T"],
    targets: Int[Tensor, "B text"],
    written: Bool[Tensor, "B text"],
    *,
    blank: int,
) -> Float[Tensor, ""]:
    """-log P of every target, summed over the rows that `fits`; the others add nothing.

    `scores` must be nobody else's, and are overwritten. Frames and targets stand flush left.
    """
    assert not ((targets == blank) & written).any(), "the blank cannot be written"
    rows = fits(present, targets, written)
    if not rows.all():
        scores, present, targets, written = (
            part[rows] for part in (scores, present, targets, written)
        )
    if scores.numel() == 0:
        return scores.sum()
    lengths = present.sum(dim=1), written.sum(dim=1)
    losses: Tensor = _Alignments.apply(scores, targets, *lengths, blank)[0]  # type: ignore[no-untyped-call]
    return losses.sum()


class _Alignments(torch.autograd.Function):
    """Some rows at a time, each with the gradient that follows from it."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, targets: Tensor, frames: Tensor, symbols: Tensor, blank: int
    ) -> Any:
        learning, losses = ctx.needs_input_grad[0], []
        for rows in _together(scores):
            logs = scores[rows].log_softmax(dim=-1).requires_grad_(learning)
            with torch.set_grad_enabled(learning):
                found = F.ctc_loss(
                    logs.transpose(0, 1),
                    targets[rows],
                    input_lengths=frames[rows],
                    target_lengths=symbols[rows],
                    blank=blank,
                    reduction="none",
                )
            losses.append(found.detach())
            if learning:
                # Of each frame it sums to nothing, so it is that of the scores as it stands.
                (scores[rows],) = torch.autograd.grad(found, logs, torch.ones_like(found))
        save_in_place(ctx, scores)
        return torch.cat(losses), scores

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Any) -> Any:
        (gradient,) = saved_in_place(ctx)
        return gradient.mul_(upstream[:, None, None]), None, None, None, None


TOGETHER = 1 << 20  # scores that a CPU works on at a time: some megabytes


def _together(scores: Tensor) -> Iterator[slice]:
    together = TOGETHER if scores.device.type == "cpu" else MANY
    rows = max(1, together // max(1, scores[0].numel()))
    return (slice(start, start + rows) for start in range(0, len(scores), rows))
