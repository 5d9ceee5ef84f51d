"""Run a model faster in inference, on a CPU in float32, with weights packed for oneDNN.

A Transformer block computes queries, keys and values as one product, and its activation and
residual sums within products. In decoding, where products have few rows, most of the time is spent
on reading weights and on calling operations, so fewer calls count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harken.attention.cache import KeyValues
from harken.attention.multihead import AttentionContext, MultiHead
from harken.attention.query_key import QueryKeyScore, split_heads
from harken.attention.relative import rotate
from harken.layers.onednn import (
    PackedLinear,
    is_packable,
    packable_linears,
    replaced_forwards,
)
from harken.layers.transformer import TransformerBlock


@contextmanager
def optimized_for_inference(model: nn.Module) -> Iterator[None]:
    """Inside this block, run Transformer blocks and linear layers with packed weights.

    The weights must not change inside the block. Outputs are equal up to rounding. Calls that need
    gradients use the weights as they are.
    """
    blocks = [block for block in model.modules() if is_fusible(block)]
    fused = {block: FusedBlock(cast(TransformerBlock, block)) for block in blocks}
    inside = {linear for block in fused.values() for linear in block.linears}
    linears = [linear for linear in packable_linears(model) if linear not in inside]
    packed = {linear: partial(_apply_packed, linear, PackedLinear(linear)) for linear in linears}
    with replaced_forwards({**fused, **packed}):
        yield


def _apply_packed(
    linear: nn.Linear, packed: PackedLinear, inputs: Float[Tensor, "*B inputs"]
) -> Float[Tensor, "*B outputs"]:
    if torch.is_grad_enabled() or inputs.dtype != torch.float32:
        return nn.Linear.forward(linear, inputs)
    return packed(inputs)


def is_fusible(module: nn.Module) -> bool:
    """Whether `FusedBlock` can replace a module."""
    if not isinstance(module, TransformerBlock):
        return False
    layers = [module.attention] if module.cross is None else [module.attention, module.cross]
    inner = [part for part in module.modules() if part is not module]
    return (
        all(_has_projections(layer) for layer in layers)
        and all(is_packable(part.weight) for part in inner if isinstance(part, nn.Linear))
        and not any(part._forward_hooks or part._forward_pre_hooks for part in inner)
    )


def _has_projections(attention: MultiHead) -> bool:
    score = type(attention.score)
    return (
        issubclass(score, QueryKeyScore)
        and score.queries is QueryKeyScore.queries
        and score.keys is QueryKeyScore.keys
        and attention.v_proj is not None
        and attention.out_proj is not None
    )


class FusedBlock:
    """The `forward` of a Transformer block for inference."""

    def __init__(self, block: TransformerBlock) -> None:
        attention, feedforward = block.attention, block.feedforward
        q_proj, k_proj = _projections(attention)
        v_proj, out_proj = cast(nn.Linear, attention.v_proj), cast(nn.Linear, attention.out_proj)
        up_proj, down_proj = feedforward.up_proj, feedforward.down_proj
        self.linears = [q_proj, k_proj, v_proj, out_proj, up_proj, down_proj]
        self._block = block
        self._qkv = PackedLinear(q_proj, k_proj, v_proj)
        self._widths = [layer.out_features for layer in (q_proj, k_proj, v_proj)]
        self._out = PackedLinear(out_proj)
        if block.cross is not None:
            cross_out = cast(nn.Linear, block.cross.out_proj)
            cross_queries, _ = _projections(block.cross)
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
        block = self._block
        if torch.is_grad_enabled() or block.training or inputs.dtype != torch.float32:
            return TransformerBlock.forward(block, inputs, context, past, memory, cross_context)
        normed = block.attention_norm(inputs) if block.pre_norm else inputs
        heads, cache = self._attend(normed, context, past)
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

    def _attend(
        self, normed: Float[Tensor, "B T J"], context: AttentionContext, past: KeyValues | None
    ) -> tuple[Float[Tensor, "B T joined"], KeyValues]:
        attention = self._block.attention
        queries, keys, values = self._qkv(normed).split(self._widths, dim=-1)
        queries = split_heads(queries, attention.heads)
        keys, values = (split_heads(part, attention.kv_heads) for part in (keys, values))
        if context.rotation is not None:
            queries, keys = rotate(queries, context.rotation), rotate(keys, context.rotation)
        cache = KeyValues(keys, values)
        if past is not None:
            cache = past.append(cache)
        return attention.run_kernel(normed, queries, cache, context), cache

    def _add(
        self, product: PackedLinear, inputs: Tensor, residual: Tensor, norm: nn.Module
    ) -> Tensor:
        total = product.add(inputs, residual)
        return total if self._block.pre_norm else cast(Tensor, norm(total))


def _projections(attention: MultiHead) -> tuple[nn.Linear, nn.Linear]:
    assert isinstance(attention.score, QueryKeyScore)
    return attention.score.q_proj, attention.score.k_proj
