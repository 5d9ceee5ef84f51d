"""The last linear map of a model."""

from torch import nn


class OutputLinear(nn.Linear):
    """Map states to logits. `training/optimizer.py` trains it like an embedding, not by Muon."""
