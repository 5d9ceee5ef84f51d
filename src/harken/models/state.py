"""States of models: tensors in nested tuples, each with the batch first."""

from typing import Any

from jaxtyping import Int
from torch import Tensor


def select_rows(state: Any, rows: Int[Tensor, "rows"]) -> Any:
    """Return these rows of every tensor in a state."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if isinstance(state, tuple):
        parts = [select_rows(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    assert state is None, f"a state consists of tensors and tuples, not {type(state)}"
    return None
