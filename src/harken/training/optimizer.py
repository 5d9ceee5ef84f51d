"""How gradients change weights: AdamW, Muon, or plain descent.

Muon replaces the step of a matrix by the nearest matrix whose singular values are all near one,
found by a polynomial iteration (Newton-Schulz, five rounds). It is done in float32, batched over
matrices of equal shape: on a CPU without bfloat16 units the usual bfloat16 is several times slower.
The step is scaled by 0.2 sqrt(max(rows, columns)), so that its size, and so the rate, is like
AdamW's. Tables of embeddings, the read-out, biases and norms are no maps from width to width and
stay with AdamW; the kernel of a convolution over x and y is one, from all numbers under it to the
channels, and goes with the matrices where `kernels` says so.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from harken.config import bounded
from harken.layers.output import OutputLinear

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5


def orthogonalize(matrices: Float[Tensor, "N rows columns"]) -> Float[Tensor, "N rows columns"]:
    """Push every singular value towards one, leaving the singular vectors."""
    tall = matrices.shape[1] > matrices.shape[2]
    turned = matrices.mT if tall else matrices
    turned = turned / (turned.norm(dim=(1, 2), keepdim=True) + 1e-7)
    first, second, third = COEFFICIENTS
    for _ in range(ROUNDS):
        square = turned @ turned.mT
        turned = first * turned + (second * square + third * square @ square) @ turned
    straightened: Tensor = turned.mT if tall else turned
    return straightened


class Muon(Optimizer):
    """Momentum, orthogonalised; for matrices, and for kernels as matrices with a row a channel."""

    def __init__(
        self, parameters: Iterable[Tensor], rate: float, momentum: float, decay: float
    ) -> None:
        super().__init__(parameters, {"lr": rate, "momentum": momentum, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.flatten(1).shape].append(parameter)
            for shape, parameters in alike.items():
                ahead = [self._look_ahead(one, group["momentum"]) for one in parameters]
                steps = orthogonalize(torch.stack([one.flatten(1) for one in ahead]))
                size = group["lr"] * 0.2 * max(shape) ** 0.5
                for parameter, step in zip(parameters, steps, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.sub_(step.view_as(parameter), alpha=size)

    def _look_ahead(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        gradient = parameter.grad
        assert gradient is not None
        state["momentum"].lerp_(gradient, 1 - momentum)
        ahead: Tensor = torch.lerp(gradient, state["momentum"], momentum)
        return ahead


def decay_groups(parameters: Iterable[nn.Parameter], decay: float) -> list[dict[str, Any]]:
    """Matrices decay; biases and gains, which hold a level and not a map, do not."""
    listed = list(parameters)
    groups = [
        {"params": [one for one in listed if one.dim() >= 2], "weight_decay": decay},
        {"params": [one for one in listed if one.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWConfig:
    """Adam with decoupled weight decay, fused."""

    kind: Literal["adamw"] = "adamw"
    rate: float = bounded(1e-3, at_least=0.0, at_most=1e6)
    decay: float = bounded(0.1, at_least=0.0, at_most=1e6)
    beta1: float = bounded(0.9, at_least=0.0, below=1.0)
    beta2: float = bounded(0.95, at_least=0.0, below=1.0)

    def over(self, parameters: Iterable[nn.Parameter]) -> AdamW:
        return AdamW(
            decay_groups(parameters, self.decay),
            lr=self.rate,
            betas=(self.beta1, self.beta2),
            fused=True,
        )

    def build(self, model: nn.Module) -> list[Optimizer]:
        return [self.over(model.parameters())]


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonConfig:
    """Muon for the matrices of the layers, AdamW for the rest."""

    kind: Literal["muon"] = "muon"
    rate: float = bounded(3e-3, at_least=0.0, at_most=1e6)
    decay: float = bounded(0.1, at_least=0.0, at_most=1e6)
    momentum: float = bounded(0.95, at_least=0.0, below=1.0)
    kernels: bool = False  # of convolutions over x and y, besides
    rest: AdamWConfig = field(default_factory=AdamWConfig)

    def build(self, model: nn.Module) -> list[Optimizer]:
        chosen = layer_matrices(model, self.kernels)
        known = {id(parameter) for parameter in chosen}
        others = [one for one in model.parameters() if id(one) not in known]
        optimisers: list[Optimizer] = [self.rest.over(others)] if others else []
        if chosen:
            optimisers.append(Muon(chosen, self.rate, self.momentum, self.decay))
        return optimisers


@dataclass(frozen=True, kw_only=True, slots=True)
class SGDConfig:
    """u <- u - rate dL/du."""

    kind: Literal["descent"] = "descent"
    rate: float = bounded(0.1, at_least=0.0, at_most=1e6)
    momentum: float = bounded(0.0, at_least=0.0, below=1.0)

    def build(self, model: nn.Module) -> list[Optimizer]:
        return [SGD(model.parameters(), lr=self.rate, momentum=self.momentum)]


OptimizerConfig = AdamWConfig | MuonConfig | SGDConfig


def layer_matrices(model: nn.Module, kernels: bool = False) -> list[Tensor]:
    """Weights of linear maps without `OutputLinear`, which may share the embedding table."""
    kinds = (nn.Linear, nn.Conv2d) if kernels else (nn.Linear,)
    tables = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)}
    return [
        module.weight
        for module in model.modules()
        if isinstance(module, kinds)
        and not isinstance(module, OutputLinear)
        and id(module.weight) not in tables
    ]


def set_rates(optimisers: Iterable[Optimizer], factor: float) -> None:
    """Every group's rate as a factor of the one it began with."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group.setdefault("peak_rate", group["lr"]) * factor
