"""Checks of the tensors that a caller passes to `forward`.

Only shapes are read, so the checks cost nothing on a GPU and work under `torch.compile`.
"""

from torch import Tensor


def check_shape(name: str, tensor: Tensor, *sizes: int | str) -> None:
    """Raise unless the tensor has these sizes; a word stands for an axis of any size."""
    fits = tensor.dim() == len(sizes) and all(
        isinstance(size, str) or found == size
        for found, size in zip(tensor.shape, sizes, strict=True)
    )
    if not fits:
        expected = ", ".join(map(str, sizes))
        raise ValueError(f"{name}: expected shape ({expected}), got {tuple(tensor.shape)}")


def check_rows(name: str, rows: Tensor, max_length: int | None = None) -> None:
    """Raise unless `rows` has the shape (batch, time) and no row is longer than the model takes."""
    check_shape(name, rows, "batch", "time")
    check_length(name, rows.shape[1], max_length)


def check_length(name: str, length: int, max_length: int | None) -> None:
    """Raise where a row is longer than the model takes."""
    if max_length is not None and length > max_length:
        raise ValueError(f"{name}: expected at most {max_length} in a row, got {length}")
