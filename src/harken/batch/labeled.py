"""Batches of inputs with labels, for classification."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class LabeledBatch(NamedTuple):
    """The arguments of a classifier, and the labels.

    `targets` are indices of labels or, if an example may have several labels, 1 for each of its
    labels and 0 for the others.
    """

    inputs: tuple[Tensor, ...]
    targets: Int[Tensor, "B"] | Float[Tensor, "B labels"]

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "LabeledBatch":
        inputs = tuple(tensor.to(device) for tensor in self.inputs)
        return LabeledBatch(inputs, self.targets.to(device))
