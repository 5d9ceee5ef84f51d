"""Initial weights, as in GPT-2: linear layers and embeddings are normal, and biases are zero.

Projections to the residual stream (`ResidualLinear`) are scaled by 1/√(2 * layers). RNNs and the
kernels of convolutions have PyTorch's default distributions.
"""

import math

import torch
from torch import nn

from harken.attention.multihead import ResidualLinear
from harken.attention.query_key import Score
from harken.attention.scores import INITIAL_STD


def initialize(model: nn.Module, layers: int, seed: int) -> None:
    """Draw all weights from one seeded generator; scores initialize their own parameters."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INITIAL_STD, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Score):
            module.reset_parameters(generator)
        elif isinstance(module, nn.RNNBase):
            bound = module.hidden_size**-0.5  # PyTorch's default
            for parameter in module.parameters(recurse=False):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.ConvTranspose1d):
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, ResidualLinear):
                module.weight.mul_(1.0 / math.sqrt(2 * layers))
