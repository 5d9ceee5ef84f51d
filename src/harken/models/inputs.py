"""Check the shapes of model inputs, and select rows of decoder states.

The checks read no elements, so they do not wait for a GPU and work under `torch.compile`.
"""

from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor

from harken.attention.cache import KeyValues

TokenIds = Int[Tensor, "B T"]
Present = Bool[Tensor, "B T"]


def check_shape(name: str, tensor: Tensor, *sizes: int | str) -> None:
    """Raise an error unless the tensor has these sizes; a string stands for any size."""
    if tensor.dim() != len(sizes) or any(
        isinstance(size, int) and actual != size
        for actual, size in zip(tensor.shape, sizes, strict=True)
    ):
        expected = ", ".join(map(str, sizes))
        raise ValueError(f"{name}: expected shape ({expected}), got {tuple(tensor.shape)}")


def check_rows(name: str, rows: Tensor, max_length: int | None = None) -> None:
    """Raise an error unless `rows` has shape (batch, time) with time <= `max_length`."""
    check_shape(name, rows, "batch", "time")
    check_length(name, rows.shape[1], max_length)


def check_length(name: str, length: int, max_length: int | None) -> None:
    """Raise an error if `length` exceeds `max_length`; None means no limit."""
    if max_length is not None and length > max_length:
        raise ValueError(f"{name}: expected at most {max_length} per row, got {length}")


def select_rows(state: Any, rows: Int[Tensor, "rows"]) -> Any:
    """Select rows of all tensors of a state, which is a nested tuple of batch-first tensors."""
    if isinstance(state, KeyValues):
        return state.select(rows)
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if isinstance(state, tuple):
        parts = [select_rows(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    assert state is None, f"a state consists of tensors and tuples, not {type(state)}"
    return None
