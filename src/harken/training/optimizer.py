"""Optimizers: AdamW, Muon, SGD.

Muon (Jordan et al., 2024) orthogonalizes the momentum of a matrix by five Newton-Schulz iterations.
They run in float32, which is faster than bfloat16 on most CPUs, in batches of matrices of equal
shape. The step is scaled by 0.2 sqrt(max(rows, columns)), so that AdamW's learning rates apply.
Muon trains the weights of `nn.Linear` layers except the output layer; AdamW trains all other
parameters, such as embeddings, biases and norms.

With `layer_decay` d < 1, the learning rate of parameters at depth n (`layers/depth.py`) is lr times
d^(N - n), where N is the largest depth, as in the finetuning of ELECTRA and BEiT.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from harken.config import bounded
from harken.errors import UserError
from harken.layers.depth import parameter_depths
from harken.layers.embedding import OutputLinear
from harken.training.sharding import local_part, map_matrices

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of x, x^3 and x^5
ITERATIONS = 5


def orthogonalize(matrices: Float[Tensor, "N rows columns"]) -> Float[Tensor, "N rows columns"]:
    """Move every singular value towards 1 and keep the singular vectors."""
    tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT if tall else matrices
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        wide = a * wide + (b * gram + c * gram @ gram) @ wide
    result: Tensor = wide.mT if tall else wide
    return result


Group = dict[str, Any]  # parameters with their learning rate


class Muon(Optimizer):
    """SGD with orthogonalized Nesterov momentum, for matrices and convolution kernels."""

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[Group],
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.flatten(1).shape].append(parameter)
            for shape, parameters in by_shape.items():
                momenta = [self._nesterov(parameter, group["momentum"]) for parameter in parameters]
                updates = map_matrices(orthogonalize, momenta)
                step_size = group["lr"] * 0.2 * max(shape) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    local = local_part(parameter)
                    local.mul_(1 - group["lr"] * group["weight_decay"])
                    local.sub_(update.view_as(local), alpha=step_size)

    def _nesterov(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - momentum)
        nesterov: Tensor = torch.lerp(gradient, state["momentum"], momentum)
        return nesterov


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are not frozen."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def layer_groups(
    model: nn.Module, parameters: Iterable[nn.Parameter], lr: float, layer_decay: float
) -> list[Group]:
    """Return a parameter group per depth, the deepest with the highest learning rate first."""
    depths = parameter_depths(model)
    top, by_depth = max(depths.values()), defaultdict[int, list[nn.Parameter]](list)
    if layer_decay < 1.0 and top == 0:
        raise UserError(
            f"optimizer.layer_decay = {layer_decay}, but the model has no Transformer or Conformer "
            "blocks",
            fix="leave out optimizer.layer_decay",
        )
    for parameter in parameters:
        by_depth[top - depths[parameter] if layer_decay < 1.0 else 0].append(parameter)
    return [
        {"params": by_depth[distance], "lr": lr * layer_decay**distance}
        for distance in sorted(by_depth)
    ]


def _decay_groups(groups: Iterable[Group], decay: float) -> list[Group]:
    """Divide each group: matrices with weight decay, biases and norms without."""
    divided = [
        {**group, "params": parameters, "weight_decay": weight_decay}
        for group in groups
        for parameters, weight_decay in (
            ([p for p in group["params"] if p.dim() >= 2], decay),
            ([p for p in group["params"] if p.dim() < 2], 0.0),
        )
    ]
    return [group for group in divided if group["params"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWConfig:
    """Adam with decoupled weight decay, fused."""

    kind: Literal["adamw"] = "adamw"
    lr: float = bounded(1e-3, at_least=0.0, at_most=1e6)  # peak learning rate
    # decoupled weight decay of matrices; biases and norms have none
    weight_decay: float = bounded(0.1, at_least=0.0, at_most=1e6)
    beta1: float = bounded(0.9, at_least=0.0, below=1.0)  # decay of the first moment
    beta2: float = bounded(0.95, at_least=0.0, below=1.0)  # decay of the second moment
    # factor of the learning rate from each block to the block below it; embeddings have the lowest
    layer_decay: float = bounded(1.0, above=0.0, at_most=1.0)

    def build_for(self, model: nn.Module, parameters: Iterable[nn.Parameter]) -> AdamW:
        by_layer = layer_groups(model, parameters, self.lr, self.layer_decay)
        groups, betas = _decay_groups(by_layer, self.weight_decay), (self.beta1, self.beta2)
        return AdamW(groups, lr=self.lr, betas=betas, fused=True)

    def build(self, model: nn.Module) -> list[Optimizer]:
        return [self.build_for(model, trained_parameters(model))]


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonConfig:
    """Muon for the weights of linear layers except the output layer, AdamW for all others."""

    kind: Literal["muon"] = "muon"
    lr: float = bounded(3e-3, at_least=0.0, at_most=1e6)  # peak learning rate
    weight_decay: float = bounded(0.1, at_least=0.0, at_most=1e6)  # decoupled weight decay
    momentum: float = bounded(0.95, at_least=0.0, below=1.0)  # momentum coefficient
    conv_kernels: bool = False  # whether Muon also trains Conv2d kernels, as matrices
    layer_decay: float = bounded(1.0, above=0.0, at_most=1.0)  # as in AdamW, for the matrices
    fallback: AdamWConfig = AdamWConfig()  # optimizer of all other parameters

    def build(self, model: nn.Module) -> list[Optimizer]:
        matrices = layer_matrices(model, self.conv_kernels)
        ids = {id(parameter) for parameter in matrices}
        others = [parameter for parameter in trained_parameters(model) if id(parameter) not in ids]
        optimizers: list[Optimizer] = [self.fallback.build_for(model, others)] if others else []
        if matrices:
            groups = layer_groups(model, matrices, self.lr, self.layer_decay)
            optimizers.append(Muon(groups, self.lr, self.momentum, self.weight_decay))
        return optimizers


@dataclass(frozen=True, kw_only=True, slots=True)
class SGDConfig:
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    lr: float = bounded(0.1, at_least=0.0, at_most=1e6)  # peak learning rate
    momentum: float = bounded(0.0, at_least=0.0, below=1.0)  # momentum coefficient
    layer_decay: float = bounded(1.0, above=0.0, at_most=1.0)  # as in AdamW

    def build(self, model: nn.Module) -> list[Optimizer]:
        groups = layer_groups(model, trained_parameters(model), self.lr, self.layer_decay)
        return [SGD(groups, lr=self.lr, momentum=self.momentum)]


OptimizerConfig = AdamWConfig | MuonConfig | SGDConfig


def layer_matrices(model: nn.Module, conv_kernels: bool = False) -> list[nn.Parameter]:
    """Return the matrices for Muon: no `OutputLinear`, no tied embeddings, nothing frozen."""
    kinds = (nn.Linear, nn.Conv2d) if conv_kernels else (nn.Linear,)
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return [
        cast(nn.Parameter, module.weight)
        for module in model.modules()
        if isinstance(module, kinds)
        and not isinstance(module, OutputLinear)
        and module.weight.requires_grad
        and id(module.weight) not in embeddings
    ]


def scale_learning_rates(optimizers: Iterable[Optimizer], factor: float) -> None:
    """Set the learning rate of every group to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("peak_lr", group["lr"]) * factor
