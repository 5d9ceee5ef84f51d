"""First weights: small and normal, with the paths into the residual stream scaled down by depth.

A residual stream that sums 2L terms of equal size grows as sqrt(2L); scaling what each layer adds
by 1 / sqrt(2L) keeps its size at the start, as GPT-2 does.
"""

import math

import torch
from torch import nn

from harken.attention.multihead import ResidualLinear
from harken.attention.query_key import Score
from harken.attention.scores import INITIAL_STD


def initialize(model: nn.Module, layers: int, seed: int) -> None:
    """Draw every weight from one seeded stream, whatever was drawn before.

    Modules of PyTorch are initialized here; a score initializes the parameters it holds itself.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INITIAL_STD, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Score):
            module.reset_parameters(generator)
        elif isinstance(module, nn.RNNBase):
            # PyTorch's own choice, from our stream: small enough for a step to keep its size.
            for parameter in module.parameters(recurse=False):
                reach = module.hidden_size**-0.5
                nn.init.uniform_(parameter, -reach, reach, generator=generator)
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.ConvTranspose1d):
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    shrink = 1.0 / math.sqrt(2 * layers)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, ResidualLinear):
                module.weight.mul_(shrink)
