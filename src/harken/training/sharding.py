"""Divide the parameters of a model among processes with PyTorch's FSDP2 (`fully_shard`).

Every process stores a part of the rows of each parameter, of its gradient and of its optimizer
state. A Transformer or Conformer block gathers its parameters before its forward and its backward
pass and frees them afterwards, separately for its cross-attention; all other parameters are
gathered together. All ranks must therefore compute equally many forward and backward passes.

`torch.distributed.tensor` takes two seconds to import, so it is imported inside functions.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from harken.errors import UserError
from harken.layers.transformer import Block, TransformerBlock
from harken.training.distributed import connection_errors, world
from harken.training.runtime import RuntimeConfig

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

Model = TypeVar("Model", bound=nn.Module)


def uses_sharding(runtime: RuntimeConfig) -> bool:
    """Return whether the model is divided among processes; a single process holds all of it."""
    return runtime.reduction == "sharded" and world().size > 1


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process has only a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def local_part(tensor: Tensor) -> Tensor:
    """Return the rows of this rank, or the tensor itself if it is not sharded."""
    return cast("DTensor", tensor).to_local() if is_sharded(tensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor; all ranks call this in the same order."""
    if not is_sharded(tensor):
        return tensor
    with connection_errors():
        return cast("DTensor", tensor).full_tensor()


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Divide a tensor, which every rank has, in the same way as `other`."""
    if not is_sharded(other):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    sharded = cast("DTensor", other)
    return distribute_tensor(tensor, sharded.device_mesh, sharded.placements, src_data_rank=None)


def map_matrices(
    function: Callable[[Tensor], Tensor], matrices: Sequence[Tensor]
) -> Float[Tensor, "N rows columns"]:
    """Apply a function to sharded matrices and return this rank's rows of the results.

    The function takes and returns whole matrices (N rows columns). The matrices are divided among
    the ranks: each rank receives all rows of some matrices, applies the function to them, and sends
    every rank its rows of the results.
    """
    local = torch.stack([local_part(matrix).flatten(1) for matrix in matrices])
    if not is_sharded(matrices[0]):
        return function(local)
    rank, size = world()
    # Rank r computes the matrices r, r + size, r + 2 size, …
    owned = [range(other, len(matrices), size) for other in range(size)]
    order = [index for share in owned for index in share]
    rows = [len(range(*_row_range(len(matrices[0]), other))) for other in range(size)]
    shapes = [(len(owned[rank]), count, local.shape[2]) for count in rows]
    received_lengths = [math.prod(shape) for shape in shapes]
    sent_lengths = [len(share) * local[0].numel() for share in owned]
    received, local_results = local.new_empty(sum(received_lengths)), torch.empty_like(local)
    with connection_errors():
        dist.all_to_all_single(received, local[order].flatten(), received_lengths, sent_lengths)
        parts = zip(torch.split(received, received_lengths), shapes, strict=True)
        results = function(torch.cat([part.view(shape) for part, shape in parts], dim=1))
        flat = torch.cat([part.flatten() for part in torch.split(results, rows, dim=1)])
        dist.all_to_all_single(local_results.view(-1), flat, sent_lengths, received_lengths)
    local_results[order] = local_results.clone()  # from the order by rank to that of `matrices`
    return local_results


def _row_range(rows: int, rank: int) -> tuple[int, int]:
    """Return the first row of a rank and the row after its last one, as FSDP divides them."""
    share = -(-rows // world().size)
    return min(rank * share, rows), min((rank + 1) * share, rows)


def build_sharded(build: Callable[[], Model], device: torch.device) -> Model:
    """Build a model of which each rank stores a part; no rank ever stores all of it.

    The weights are those that `build` gives in one process.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    model, rows = initialize_rows(build)
    if any(weight._backward_hooks for weight in model.parameters()):
        raise UserError(
            "model.init_heads: a frozen head cannot be sharded (expected frozen = false with "
            'training.runtime.reduction = "sharded")',
            fix='set frozen = false, or training.runtime.reduction to "exact" or "fast"',
        )
    # Some outputs are views; no block and no loss changes one in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
    mesh = init_device_mesh(device.type, (world().size,))
    for module in list(model.modules()):
        if isinstance(module, TransformerBlock) and module.cross is not None:
            # The keys and values of the encoder's output are computed before the block is called.
            fully_shard(module.cross, mesh=mesh)
            register_fsdp_forward_method(module.cross, "project_kv")
            register_fsdp_forward_method(module.cross, "attend")
        if isinstance(module, Block):
            fully_shard(cast(nn.Module, module), mesh=mesh)
    fully_shard(model, mesh=mesh)
    model._apply(lambda weight: _allocate(weight, device))  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in rows:
                local_part(weight).copy_(rows.pop(name))
    for group in _groups(model):
        group.set_gradient_divide_factor(1.0)  # the loop needs the sum, not the mean
        group.set_force_sum_reduction_for_comms(True)
    # FSDP takes the module that is called first as the root. A search may call a block first, so
    # the model is made the root here.
    cast(FSDPModule, model)._get_fsdp_state()._lazy_init()
    return model


def initialize_rows(build: Callable[[], Model]) -> tuple[Model, dict[str, Tensor]]:
    """Build a model whose matrices have no data, and return this rank's rows of them by name."""
    initial = _LocalInitialization()
    hook = register_module_parameter_registration_hook(initial.register)  # type: ignore[arg-type]
    try:
        with initial:
            model = build()
    finally:
        hook.remove()
    rows = initial.rows
    weights = model.named_parameters()
    return model, {name: rows[weight] for name, weight in weights if weight in rows}


def _allocate(weight: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(weight, device=device) if weight.is_meta else weight


def _groups(model: nn.Module) -> "list[FSDPModule]":
    """Return the modules whose parameters FSDP gathers, one group of parameters per module."""
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Store all parameters on every rank inside this block, so that ranks can compute alone."""
    if not any(map(is_sharded, model.parameters())):
        yield
        return
    root, *_ = groups = _groups(model)
    for group in groups:
        group.set_reshard_after_forward(False, recurse=False)
        group.unshard()
    try:
        yield
    finally:
        # Ranks may have computed different numbers of forward passes: FSDP must forget them.
        root.reset_iter_state()
        for group in groups:
            group.set_reshard_after_forward(group is not root, recurse=False)


class _LocalInitialization(TorchFunctionMode):
    """Keep this rank's rows of every matrix of a model that is built inside this block.

    A matrix has no data after its registration. A function that writes to it is applied to a
    temporary whole matrix, so it draws the random numbers of an unsharded model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Tensor, Tensor] = {}

    def register(
        self, module: nn.Module, name: str, weight: nn.Parameter | None
    ) -> nn.Parameter | None:
        """Return a matrix without data that replaces a new parameter; None to keep it."""
        if weight is None or weight.dim() < 2 or weight.is_meta:
            return None
        empty = nn.Parameter(torch.empty_like(weight, device="meta"), weight.requires_grad)
        self.rows[empty] = self._local(weight.detach())
        return empty

    def _local(self, whole: Tensor) -> Tensor:
        first, end = _row_range(len(whole), world().rank)
        return whole[first:end].clone()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        weight = args[0] if args else kwargs.get("tensor")
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if not writes or not isinstance(weight, nn.Parameter) or weight not in self.rows:
            return func(*args, **kwargs)
        first, end = _row_range(len(weight), world().rank)
        whole = torch.empty(weight.shape, dtype=weight.dtype)
        whole[first:end] = self.rows[weight]
        if args:
            func(whole, *args[1:], **kwargs)
        else:
            func(**{**kwargs, "tensor": whole})
        self.rows[weight] = self._local(whole)
        return weight
