"""Sum the gradients of the micro-batches of a step, over all processes.

`ExactSum` adds them in one binary tree over the micro-batches, so that the sum is bitwise equal for
any number of processes. `DataParallel` is PyTorch's DistributedDataParallel, which overlaps
communication with the backward pass and adds in an order that depends on the number of processes.
`ShardedSum` is for a model whose parameters are divided among the processes.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from harken.training.distributed import all_reduce_exact, world
from harken.training.runtime import RuntimeConfig
from harken.training.sharding import full_tensor, is_sharded

Model = TypeVar("Model", bound=nn.Module)
Node = list[Tensor | None]  # a gradient for each parameter, then the batch norm statistics


class ExactSum(Generic[Model]):
    """Add gradients as ((0 + 1) + (2 + 3)) + …, where the numbers are micro-batches.

    Each process computes a complete subtree. Running statistics of batch normalization are averaged
    over the micro-batches, each of which starts from those before the step.
    """

    loss_scale = 1.0  # factor of the loss before the backward pass

    def __init__(self, model: Model, runtime: RuntimeConfig) -> None:
        self.model = cast(Model, torch.compile(model)) if runtime.compile else model
        self._parameters = self._summed_parameters(model)
        norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
        buffers = [(norm.running_mean, norm.running_var) for norm in norms]
        self._statistics = [buffer for pair in buffers for buffer in pair if buffer is not None]
        steps = [norm.num_batches_tracked for norm in norms]
        self._steps = [number for number in steps if number is not None]
        self._nodes: list[Node] = []
        self._added = 0

    def _summed_parameters(self, model: Model) -> list[nn.Parameter]:
        return list(model.parameters())

    def begin(self) -> None:
        """Start a step."""
        self._nodes, self._added = [], 0
        self._before = [buffer.clone() for buffer in self._statistics]
        self._steps_before = [int(number) for number in self._steps]

    def part(self, is_last: bool) -> AbstractContextManager[None]:
        """Return a context for the loss and the backward pass of a part of a micro-batch."""
        return nullcontext()

    @torch.no_grad()
    def add(self) -> None:
        """Add the gradients of a micro-batch, which are in `grad`, to the tree."""
        leaf: Node = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        for buffer, before in zip(self._statistics, self._before, strict=True):
            leaf.append(buffer.clone())
            buffer.copy_(before)
        self._nodes.append(leaf)
        self._added += 1
        complete = self._added
        while complete % 2 == 0:  # the last two nodes are the children of one node
            right = self._nodes.pop()
            self._nodes[-1] = list(map(_sum, self._nodes[-1], right))
            complete //= 2

    def has_gradient(self) -> list[bool]:
        """Return which parameters have a gradient in this process."""
        return [gradient is not None for gradient in self._root[: len(self._parameters)]]

    @torch.no_grad()
    def reduce(self, count: int, has_gradient: list[bool]) -> None:
        """Store the sum over all `count` micro-batches in `grad`.

        `has_gradient` tells which parameters have a gradient in any process.
        """
        gradients: list[Tensor] = []
        for parameter, gradient, is_used in zip(
            self._parameters, self._root, has_gradient, strict=False
        ):
            if is_used:
                parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient
                gradients.append(parameter.grad)
        statistics = [cast(Tensor, total) for total in self._root[len(self._parameters) :]]
        all_reduce_exact([*gradients, *statistics])
        for buffer, total in zip(self._statistics, statistics, strict=True):
            buffer.copy_(total / count)
        for number, before in zip(self._steps, self._steps_before, strict=True):
            number.fill_(before + 1)

    @property
    def _root(self) -> Node:
        (root,) = self._nodes
        return root


def _sum(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    """Add in place; a parameter without a gradient counts as zero."""
    if left is None or right is None:
        return right if left is None else left
    return left.add_(right)


class DataParallel(Generic[Model]):
    """DistributedDataParallel; batch norm statistics are those of rank 0."""

    def __init__(self, model: Model, runtime: RuntimeConfig, find_unused: bool) -> None:
        self._wrapped = DistributedDataParallel(model, find_unused_parameters=find_unused)
        compiled = torch.compile(self._wrapped) if runtime.compile else self._wrapped
        self.model = cast(Model, compiled)
        self.loss_scale = float(world().size)  # DistributedDataParallel averages

    def begin(self) -> None:
        pass

    def part(self, is_last: bool) -> AbstractContextManager[None]:
        """Communicate only in the last backward pass of a step."""
        return nullcontext() if is_last else self._wrapped.no_sync()

    def add(self) -> None:
        pass

    def has_gradient(self) -> list[bool]:
        return []

    def reduce(self, count: int, has_gradient: list[bool]) -> None:
        pass


class ShardedSum(ExactSum[Model]):
    """Batch norm statistics of a sharded model, whose gradients FSDP sums in the backward pass.

    FSDP communicates in every backward pass: accumulating gradients without communication would
    store all of them on every rank.
    """

    def _summed_parameters(self, model: Model) -> list[nn.Parameter]:
        return []


GradientSum = ExactSum[Model] | DataParallel[Model]


def gradient_sum(model: Model, runtime: RuntimeConfig, stages: int) -> GradientSum[Model]:
    """Return the reduction that the recipe selects; `stages` is the number of training stages."""
    if any(map(is_sharded, model.parameters())):
        return ShardedSum(model, runtime)
    if runtime.reduction == "fast" and world().size > 1:
        return DataParallel(model, runtime, find_unused=stages > 1)
    return ExactSum(model, runtime)


def clip_gradients(model: nn.Module, max_norm: float) -> float:
    """Scale the gradients so that their norm is at most `max_norm`; return the norm before."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = full_tensor(nn.utils.get_total_norm(gradients))
    nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)
    return float(norm)
