"""Cached keys and values of earlier tokens, in buffers with room for more."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

MIN_CAPACITY = 32  # tokens


class KeyValues(NamedTuple):
    """Keys and values of one layer; keys are None for scores without keys."""

    keys: Float[Tensor, "B kv_heads S U"] | None
    values: Float[Tensor, "B kv_heads S I"]
    buffer: "KeyValueBuffer | None" = None  # storage of these tensors, if it has room for more

    def append(self, new: "KeyValues") -> "KeyValues":
        """Return the cache with new tokens at the end; `self` stays valid.

        New tokens are written in place if there is room and `self` has not been extended before.
        """
        length, added = self.values.shape[2], new.values.shape[2]
        if self.values.requires_grad or new.values.requires_grad:
            keys = None
            if self.keys is not None and new.keys is not None:
                keys = torch.cat((self.keys, new.keys), dim=2)
            return KeyValues(keys, torch.cat((self.values, new.values), dim=2))
        buffer = self.buffer
        if buffer is None or buffer.length != length or buffer.capacity < length + added:
            buffer = KeyValueBuffer(self, capacity=max(2 * (length + added), MIN_CAPACITY))
        return buffer.append(new)

    def select(self, rows: Int[Tensor, "rows"]) -> "KeyValues":
        """Return these rows of the batch."""
        keys = None if self.keys is None else self.keys.index_select(0, rows)
        return KeyValues(keys, self.values.index_select(0, rows))


class KeyValueBuffer:
    """Storage for keys and values of up to `capacity` tokens, of which `length` are written."""

    def __init__(self, first: KeyValues, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._keys = None if first.keys is None else _room(first.keys, capacity)
        self._values = _room(first.values, capacity)
        self.append(first)

    def append(self, new: KeyValues) -> KeyValues:
        """Write tokens after the last one and return all of them."""
        start, self.length = self.length, self.length + new.values.shape[2]
        keys = None
        if self._keys is not None and new.keys is not None:
            self._keys[:, :, start : self.length] = new.keys
            keys = self._keys[:, :, : self.length]
        self._values[:, :, start : self.length] = new.values
        return KeyValues(keys, self._values[:, :, : self.length], self)


def _room(tensor: Tensor, capacity: int) -> Tensor:
    batch, heads, _, width = tensor.shape
    return tensor.new_empty(batch, heads, capacity, width)
