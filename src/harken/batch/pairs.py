"""Two sequences side by side: what is read, and what is written after it token by token."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from harken.batch.padding import IGNORE_INDEX, pad, shift_targets
from harken.batch.ragged import Numbers, Ragged


class PairBatch(NamedTuple):
    """A source, and the target as it is told (`start` first) and as it is wanted (`end` last)."""

    source: Int[Tensor, "B M"]
    present: Bool[Tensor, "B M"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]

    @property
    def counted(self) -> int:
        return int((self.targets != IGNORE_INDEX).sum())

    def to(self, device: torch.device) -> "PairBatch":
        return PairBatch(*(part.to(device) for part in self))


class RaggedPairs(NamedTuple):
    """Sources and targets of equal number."""

    sources: Ragged
    targets: Ragged

    @property
    def lengths(self) -> Numbers:
        """What a row of the pair costs: the longer side, the target with its end."""
        longer: Numbers = np.maximum(self.sources.lengths, self.targets.lengths + 1)
        return longer

    def take(self, chosen: Numbers) -> "RaggedPairs":
        return RaggedPairs(*(side.take(chosen) for side in self))


def pair_batch(pairs: RaggedPairs, start: int, end: int, filler: int) -> PairBatch:
    """Both sides flush left."""
    source, present = pad(pairs.sources, filler)
    return PairBatch(source, present, *shift_targets(pairs.targets, start, end, filler))
