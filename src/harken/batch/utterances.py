"""Frames of sound side by side with what is said in them."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.batch.padding import IGNORE_INDEX, shift_targets
from harken.batch.ragged import Ragged


class UtteranceBatch(NamedTuple):
    """Sound, and its text as it is told (`start` first) and as it is wanted (`end` last)."""

    frames: Float[Tensor, "B S F"]
    present: Bool[Tensor, "B S"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]

    @property
    def counted(self) -> int:
        """SpecialTokens and ends: what a loss is divided by, whichever it is."""
        return int((self.targets != IGNORE_INDEX).sum())

    def to(self, device: torch.device) -> "UtteranceBatch":
        return UtteranceBatch(*(part.to(device) for part in self))


def utterance_batch(
    frames: Float[Tensor, "B S F"],
    present: Bool[Tensor, "B S"],
    texts: Ragged,
    start: int,
    end: int,
    filler: int,
) -> UtteranceBatch:
    """Texts flush left beside their sound."""
    return UtteranceBatch(frames, present, *shift_targets(texts, start, end, filler))
