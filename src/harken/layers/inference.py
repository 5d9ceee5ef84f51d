"""Run a model faster in inference, on a CPU in float32, with weights packed for oneDNN.

A Transformer block computes queries, keys and values as one product, and its activation and
residual sums within products. In decoding, where products have few rows, most of the time is spent
on reading weights and on calling operations, so fewer calls count.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeGuard, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.cache import KeyValues
from harken.attention.multihead import AttentionContext
from harken.attention.query_key import split_heads
from harken.layers.onednn import (
    PackedLinear,
    has_hooks,
    is_packable,
    joinable_layers,
    packable_linears,
    replaced,
)
from harken.layers.transformer import TransformerBlock


@contextmanager
def optimized_for_inference(model: nn.Module) -> Iterator[None]:
    """Inside this block, run Transformer blocks and linear layers with packed weights.

    The weights must not change inside the block. Outputs are equal up to rounding. Calls that need
    gradients use the weights as they are.
    """
    linears = packable_linears(model)
    attention = joinable_layers(model, linears)
    blocks = [FusedBlock(module) for module in model.modules() if is_fusible(module)]
    inside = {linear for layer in attention for linear in layer.projections()}
    inside.update(linear for block in blocks for linear in block.linears)
    packed = [
        (linear, partial(_apply_packed, linear, PackedLinear(linear)))
        for linear in linears
        if linear not in inside
    ]
    joint = [
        (layer, partial(_apply_together, layer.projections(), PackedLinear(*layer.projections())))
        for layer in attention
    ]
    forwards = [*packed, *((block.block, block) for block in blocks)]
    with replaced("forward", forwards), replaced("qkv_proj", joint):
        yield


def needs_module(inputs: Tensor) -> bool:
    """Whether to call the module as it is: packed weights have no gradients and are in float32."""
    return torch.is_grad_enabled() or inputs.dtype != torch.float32


def _apply_packed(
    linear: nn.Linear, packed: PackedLinear, inputs: Float[Tensor, "*B inputs"]
) -> Float[Tensor, "*B outputs"]:
    return nn.Linear.forward(linear, inputs) if needs_module(inputs) else packed(inputs)


def _apply_together(
    linears: Sequence[nn.Linear], packed: PackedLinear, inputs: Float[Tensor, "*B inputs"]
) -> Sequence[Tensor]:
    if needs_module(inputs):
        return [linear(inputs) for linear in linears]
    return packed.outputs(inputs)


def is_fusible(module: nn.Module) -> TypeGuard[TransformerBlock]:
    """Whether `FusedBlock` can replace a module."""
    if not isinstance(module, TransformerBlock):
        return False
    layers = [module.attention] if module.cross is None else [module.attention, module.cross]
    inner = [part for part in module.modules() if part is not module]
    return (
        all(layer.can_join() and layer.out_proj is not None for layer in layers)
        and all(is_packable(part.weight) for part in inner if isinstance(part, nn.Linear))
        and not any(has_hooks(part) for part in inner)
    )


class FusedBlock:
    """The `forward` of a Transformer block for inference."""

    def __init__(self, block: TransformerBlock) -> None:
        attention, feedforward = block.attention, block.feedforward
        out_proj = cast(nn.Linear, attention.out_proj)
        up_proj, down_proj = feedforward.up_proj, feedforward.down_proj
        self.linears = [out_proj, up_proj, down_proj]
        self.block = block
        self._out = PackedLinear(out_proj)
        if block.cross is not None:
            cross_out = cast(nn.Linear, block.cross.out_proj)
            cross_queries, *_ = block.cross.projections()
            self.linears += [cross_queries, cross_out]
            self._cross_queries = PackedLinear(cross_queries)
            self._cross_out = PackedLinear(cross_out)
        self._up = PackedLinear(up_proj, activation=feedforward.activation)
        self._gate = None
        if feedforward.gate_proj is not None:
            self.linears.append(feedforward.gate_proj)
            self._gate = PackedLinear(feedforward.gate_proj)
        self._down = PackedLinear(down_proj)

    def __call__(
        self,
        inputs: Float[Tensor, "B T J"],
        context: AttentionContext,
        past: KeyValues | None = None,
        memory: KeyValues | None = None,
        cross_context: AttentionContext | None = None,
    ) -> tuple[Float[Tensor, "B T J"], KeyValues]:
        """Return the outputs, and the keys and values of self-attention."""
        block = self.block
        if block.training or needs_module(inputs):
            return TransformerBlock.forward(block, inputs, context, past, memory, cross_context)
        normed = block.attention_norm(inputs) if block.pre_norm else inputs
        heads, cache = block.attention.run(normed, context, past)
        states = self._add(self._out, heads, inputs, block.attention_norm)
        if block.cross is not None and block.cross_norm is not None:
            assert memory is not None and cross_context is not None
            normed = block.cross_norm(states) if block.pre_norm else states
            queries = split_heads(self._cross_queries(normed), block.cross.heads)
            heads = block.cross.run_kernel(normed, queries, memory, cross_context)
            states = self._add(self._cross_out, heads, states, block.cross_norm)
        normed = inputs if block.parallel else states
        normed = block.feedforward_norm(normed) if block.pre_norm else normed
        hidden = self._up(normed)
        if self._gate is not None:
            hidden = hidden * self._gate(normed)
        return self._add(self._down, hidden, states, block.feedforward_norm), cache

    def _add(
        self, product: PackedLinear, inputs: Tensor, residual: Tensor, norm: nn.Module
    ) -> Tensor:
        total = product.add(inputs, residual)
        return total if self.block.pre_norm else cast(Tensor, norm(total))
