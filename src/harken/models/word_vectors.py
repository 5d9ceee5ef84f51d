"""Word vectors from neighbours alone (CBOW): the mean of those around a word foretells it.

    c_t = mean of x_s over 0 < |s - t| <= window        p(w at t) = softmax(R c_t)

The rows x are the word table of another model, which goes on with them; R serves only here.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from harken.config import bounded
from harken.layers.output import OutputLinear


@dataclass(frozen=True, kw_only=True, slots=True)
class NeighboursConfig:
    """How far a neighbour may stand."""

    window: int = bounded(2, at_least=1)

    def build(self, width: int, words: int) -> "Neighbours":
        return Neighbours(self, width, words)


def neighbour_means(
    vectors: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"], window: int
) -> Float[Tensor, "B T J"]:
    """Of each place, the mean of those around it without itself; zeros where there are none."""
    time = vectors.shape[1]
    shown = torch.cat((vectors, torch.ones_like(vectors[..., :1])), dim=-1)
    shown = shown.masked_fill(~present[..., None], 0.0)
    sums = torch.zeros_like(shown)
    for away in range(1, min(window, time - 1) + 1):
        sums[:, away:] += shown[:, : time - away]
        sums[:, : time - away] += shown[:, away:]
    return sums[..., :-1] / sums[..., -1:].clamp(min=1.0)


class Neighbours(nn.Module):
    """The read-out R over the words."""

    def __init__(self, config: NeighboursConfig, width: int, words: int) -> None:
        super().__init__()
        self.window = config.window
        self.lm_head = OutputLinear(width, words, bias=False)

    def forward(
        self, vectors: Float[Tensor, "B T J"], present: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "N V"]:
        """Return the logits of the word at each present position, row by row."""
        means = neighbour_means(vectors, present, self.window)
        logits: Tensor = self.lm_head(means[present])
        return logits
