"""Checks of the tensors that are passed to models, and the selection of rows from states.

Only shapes are checked, so the checks cost nothing on a GPU and work under `torch.compile`.
"""

from typing import Any

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


def select_rows(state: Any, rows: Int[Tensor, "rows"]) -> Any:
    """Return these rows of a state: tensors in nested tuples, each with the batch first."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if isinstance(state, tuple):
        parts = [select_rows(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    assert state is None, f"a state consists of tensors and tuples, not {type(state)}"
    return None
