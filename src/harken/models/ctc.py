"""Connectionist temporal classification: one symbol a frame, all alignments of a text at once.

    P(text) = sum over paths of  product over t of  softmax(W h_t + b)[path_t]

A path has a symbol or the blank at every frame; it says a text when its repeated symbols are taken
once and its blanks dropped. So n symbols need n frames, and one more wherever two neighbours are
equal: only a blank tells them from one symbol that lasts.

The blank is one of the V symbols, whichever no text contains: a padding or an end symbol will do,
and a decoder can then share the numbers of the rest. Searching for texts is in `decode/`.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.dropout import Dropout
from harken.models.initialise import initialise


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
        self.reader = nn.Linear(width, symbols)
        initialise(self, 1, seed)

    def forward(self, states: Float[Tensor, "B T J"]) -> Float[Tensor, "B T V"]:
        """In single precision at the least: a sum over a thousand frames needs the bits."""
        scores: Tensor = self.reader(self.dropout(states))
        return (scores.float() if scores.dtype.itemsize < 4 else scores).log_softmax(dim=-1)


def fits(
    present: Bool[Tensor, "B T"], targets: Int[Tensor, "B text"], written: Bool[Tensor, "B text"]
) -> Bool[Tensor, "B"]:
    """Rows with frames enough for their target; one that has too few is said by no path."""
    repeated = (targets[:, 1:] == targets[:, :-1]) & written[:, 1:]
    return written.sum(dim=1) + repeated.sum(dim=1) <= present.sum(dim=1)


def ctc_loss(
    logs: Float[Tensor, "B T V"],
    present: Bool[Tensor, "B T"],
    targets: Int[Tensor, "B text"],
    written: Bool[Tensor, "B text"],
    *,
    blank: int,
) -> Float[Tensor, ""]:
    """-log P of every target, summed over the rows that `fits`; the others add nothing.

    `logs` must be normalised, for the gradient counts on it. Frames and targets stand flush left.
    """
    assert not ((targets == blank) & written).any(), "the blank cannot be written"
    rows = fits(present, targets, written)
    if not rows.all():
        logs, present, targets, written = (part[rows] for part in (logs, present, targets, written))
    if logs.numel() == 0:
        return logs.sum()
    return F.ctc_loss(
        logs.transpose(0, 1),
        targets[written],
        input_lengths=present.sum(dim=1),
        target_lengths=written.sum(dim=1),
        blank=blank,
        reduction="sum",
    )
