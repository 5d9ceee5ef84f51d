"""Graphs of a model for ONNX: modules whose inputs and outputs are tensors with names.

    one graph       inputs -> logits                             tag, fill, classify, CTC
    decoder         tokens, state -> logits, next state          lm, answer
    encoder         inputs -> memory, first state                translate, transcribe, caption
      and decoder   tokens, memory, state -> logits, next state

The state is an argument and a result: the output `next_x` replaces the input `x`. At first, it is
the output `x` of the encoder, or zeros, with length 0 along the axis `past`. So a runtime needs no
description of a graph apart from the names and axes of its inputs and outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from harken.attention.cache import KeyValues
from harken.layers.transformer import StackState

Axes = tuple[str | int, ...]  # a name stands for a size that can change
NEXT = "next_"  # prefix of the outputs that are the next state
# Distinct sizes above 1, since PyTorch would treat 0, 1 and equal sizes as constants.
EXAMPLE_SIZES = {
    "batch": 3,
    "length": 11,
    "past": 7,
    "memory": 13,
    "frames": 37,
    "pieces": 17,
    "spellings": 19,
    "characters": 5,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """Name, axes and type of an input of a graph."""

    name: str
    axes: Axes
    dtype: torch.dtype = torch.float32
    limit: int = 2  # integers are below it

    def example(self, generator: torch.Generator) -> Tensor:
        """Return random values, or a mask with padding on the right."""
        sizes = [EXAMPLE_SIZES[axis] if isinstance(axis, str) else axis for axis in self.axes]
        if self.dtype == torch.bool:
            return torch.arange(sizes[1]) < sizes[1] - torch.arange(sizes[0])[:, None] % 3
        if self.dtype == torch.int64:
            return torch.randint(self.limit, sizes, generator=generator)
        return torch.randn(sizes, generator=generator)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Graph:
    """A module with the names and axes of its inputs, and the names of its outputs."""

    name: str
    module: nn.Module
    inputs: Sequence[TensorSpec]
    outputs: Sequence[str]


def token_spec(limit: int, name: str = "tokens", axes: Axes = ("batch", "length")) -> TensorSpec:
    """Return the spec of indices below `limit`."""
    return TensorSpec(name=name, axes=axes, dtype=torch.int64, limit=limit)


def mask_spec(name: str, axes: Axes = ("batch", "length")) -> TensorSpec:
    """Return the spec of a mask that is true at tokens."""
    return TensorSpec(name=name, axes=axes, dtype=torch.bool)


# --- keys and values


class ConcatenatedKeyValues(KeyValues):
    """Keys and values without the buffer of `KeyValues`, into which a graph cannot write."""

    def append(self, new: KeyValues) -> KeyValues:
        keys = None
        if self.keys is not None and new.keys is not None:
            keys = torch.cat((self.keys, new.keys), dim=2)
        return KeyValues(keys, torch.cat((self.values, new.values), dim=2))


def cache_specs(attentions: Sequence[nn.Module], width: int, prefix: str) -> list[TensorSpec]:
    """Return a spec for the keys and values of each layer along the axis `prefix`.

    `width` is that of the vectors from which they are computed.
    """
    vector = torch.zeros(1, 1, width)
    caches = [cast(Any, attention).project_kv(vector) for attention in attentions]
    return [
        TensorSpec(
            name=f"{prefix}_{name}_{index}",
            axes=("batch", tensor.shape[1], prefix, tensor.shape[3]),
        )
        for index, cache in enumerate(caches)
        for name, tensor in (("keys", cache.keys), ("values", cache.values))
        if tensor is not None
    ]


def flatten_cache(layers: StackState) -> list[Tensor]:
    """Return the tensors that `cache_specs` describes."""
    pairs = ((layer.keys, layer.values) for layer in layers)
    return [tensor for pair in pairs for tensor in pair if tensor is not None]


def unflatten_cache(tensors: Sequence[Tensor], layers: int) -> StackState:
    """Undo `flatten_cache`; a score without keys has one tensor per layer."""
    if len(tensors) == layers:
        return tuple(ConcatenatedKeyValues(None, values) for values in tensors)
    return tuple(map(ConcatenatedKeyValues, tensors[::2], tensors[1::2]))
