"""Checks of the tensors that are passed to `forward`, and aliases of their types.

Only shapes are read, so the checks cost nothing on a GPU and work under `torch.compile`.
"""

from jaxtyping import Bool, Int
from torch import Tensor

TokenIds = Int[Tensor, "B T"]
Present = Bool[Tensor, "B T"]


def check_shape(name: str, tensor: Tensor, *sizes: int | str) -> None:
    """Raise an error unless the tensor has these sizes; a string is an axis of any size."""
    if tensor.dim() != len(sizes) or any(
        isinstance(size, int) and actual != size
        for actual, size in zip(tensor.shape, sizes, strict=True)
    ):
        expected = ", ".join(map(str, sizes))
        raise ValueError(f"{name}: expected shape ({expected}), got {tuple(tensor.shape)}")


def check_rows(name: str, rows: Tensor, max_length: int | None = None) -> None:
    """Raise an error unless `rows` has the shape (batch, time) and at most this length."""
    check_shape(name, rows, "batch", "time")
    check_length(name, rows.shape[1], max_length)


def check_length(name: str, length: int, max_length: int | None) -> None:
    """Raise an error if a row is longer than the model accepts."""
    if max_length is not None and length > max_length:
        raise ValueError(f"{name}: expected at most {max_length} in a row, got {length}")
