"""Random weights and tokens in float64, from one seeded stream whatever was drawn before."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from harken.claims.claim import Array

AModule = TypeVar("AModule", bound=nn.Module)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Numbers of mean 0 and variance 1."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def filled(module: AModule, generator: torch.Generator) -> AModule:
    """The module with drawn weights, of a size that keeps the size of what they read."""
    module.double().requires_grad_(False)
    for weight in module.parameters():
        weight.copy_(normal(generator, *weight.shape) * weight.shape[-1] ** -0.5)
    return module


def orthonormal(generator: torch.Generator, count: int, width: int) -> Tensor:
    """So many directions at right angles, one a row."""
    directions: Tensor = torch.linalg.qr(normal(generator, width, count)).Q
    return directions.T.contiguous()


def array(tensor: Tensor) -> Array:
    """For the predicted side, which knows no tensors."""
    found: Array = tensor.detach().double().numpy()
    return found
