"""The last linear map of a layer whose output is added to the residual stream."""

from torch import nn


class ResidualLinear(nn.Linear):
    """Its initial weights are scaled down by the depth of the model (`models/initialize.py`)."""
