"""What layers cost, each kind said once: the walk goes the way of their `forward`.

A recurrent layer waits for itself: item t of what it writes is ready one step of its cell after
item t - 1, however wide it is. A window of neighbours and a feed-forward layer wait for no time at
all, attention for a sum over it (`attention.py`).
"""

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from harken.attention.multihead import MultiHead
from harken.cost.attention import attend, look
from harken.cost.expression import Expression, log2, symbol
from harken.cost.operations import (
    add,
    bend,
    convolve,
    drop,
    hide,
    like,
    linear,
    move,
    normalise,
    scale,
)
from harken.cost.scores import Remembered, Sight
from harken.cost.tape import LONG, Tape, Value, view, whole
from harken.layers.conformer import ConformerBlock, ConvolutionModule, FrameBatchNorm, FrameNorm
from harken.layers.feedforward import FeedForward
from harken.layers.stack import Stack
from harken.layers.transformer import TransformerBlock


def feed_forward(tape: Tape, layer: FeedForward, value: Value) -> Value:
    """Widen, bend, narrow."""
    width = value.shape[-1]
    inner = like(layer.widen.out_features, width)
    wide = linear(tape, layer.widen, value, inner)
    bent = bend(tape, wide, keeps="output" if layer.activation == "relu" else "input")
    if layer.gate is not None:
        bent = scale(tape, bent, linear(tape, layer.gate, value, inner))
    return linear(tape, layer.narrow, bent, width)


def residual(
    tape: Tape,
    value: Value,
    part: Callable[[Value], Value],
    norm: nn.Module,
    dropout: nn.Module,
    *,
    before: bool,
) -> Value:
    """x + f(norm(x)), or norm(x + f(x))."""
    if before:
        return add(tape, value, drop(tape, part(normalise(tape, norm, value)), dropout))
    return normalise(tape, norm, add(tape, value, drop(tape, part(value), dropout)))


def heads_of(attention: MultiHead) -> Expression:
    """k."""
    return symbol("k", attention.heads)


def block(
    tape: Tape,
    layer: TransformerBlock,
    value: Value,
    sight: Sight,
    memory: Remembered | None = None,
    across: Sight | None = None,
) -> Value:
    """Attention, cross-attention where there is a memory, feed-forward."""
    place, heads = layer.pre_norm, heads_of(layer.attention)
    value = residual(
        tape,
        value,
        lambda one: attend(tape, layer.attention, one, sight, heads),
        layer.attention_norm,
        layer.dropout,
        before=place,
    )
    cross, norm = layer.cross, layer.cross_norm
    if cross is not None and norm is not None and memory is not None and across is not None:
        value = residual(
            tape,
            value,
            lambda one: look(tape, cross, one, memory, across, heads),
            norm,
            layer.dropout,
            before=place,
        )
    return residual(
        tape,
        value,
        lambda one: feed_forward(tape, layer.feedforward, one),
        layer.feedforward_norm,
        layer.dropout,
        before=place,
    )


def stack(
    tape: Tape, layers: Stack, value: Value, follow: Callable[[TransformerBlock, Value], Value]
) -> Value:
    """L equal blocks, of which the first is followed, and the norm that the last one left out."""
    count = len(layers.blocks)
    if count == 0:
        return value
    first = layers.blocks[0]
    assert isinstance(first, TransformerBlock)
    value = tape.stacked(symbol("L", count), lambda one: follow(first, one), whole(value))
    return value if isinstance(layers.norm, nn.Identity) else normalise(tape, layers.norm, value)


def conformer(
    tape: Tape, layer: ConformerBlock, value: Value, sight: Sight, *, padded: bool
) -> Value:
    """Half a feed-forward layer, attention, convolution, the other half."""

    def half(part: FeedForward, norm: nn.Module, one: Value) -> Value:
        inside = drop(tape, feed_forward(tape, part, normalise(tape, norm, one)), layer.dropout)
        return add(tape, one, move(tape, [inside], *inside.shape))

    heads = heads_of(layer.attention)
    value = half(layer.before, layer.before_norm, value)
    mixed = attend(
        tape, layer.attention, normalise(tape, layer.attention_norm, value), sight, heads
    )
    value = add(tape, value, drop(tape, mixed, layer.dropout))
    near = neighbours(
        tape, layer.convolution, normalise(tape, layer.convolution_norm, value), padded=padded
    )
    value = add(tape, value, drop(tape, near, layer.dropout))
    return normalise(tape, layer.final_norm, half(layer.after, layer.after_norm, value))


def neighbours(tape: Tape, layer: ConvolutionModule, value: Value, *, padded: bool) -> Value:
    """Gates, a kernel of its own for every number, a norm."""
    batch, time, width = value.shape
    wide = linear(tape, layer.widen, value, width * 2)
    gated = replace(bend(tape, wide, steps=2), shape=value.shape)
    gated = hide(tape, gated, batch, time) if padded else gated
    near = convolve(
        tape,
        layer.depthwise,
        view(gated, batch, width, time),
        batch,
        width,
        time,
        reads=width,
        writes=width,
    )
    normed = frame_norm(tape, layer.norm, view(near, batch, time, width), padded=padded)
    return linear(tape, layer.narrow, bend(tape, normed), width)


def frame_norm(tape: Tape, layer: nn.Module, value: Value, *, padded: bool) -> Value:
    """Over each frame, or over all frames of the batch."""
    if isinstance(layer, FrameNorm):
        return normalise(tape, layer.each, value)
    assert isinstance(layer, FrameBatchNorm)
    batch, time, width = value.shape
    for parameter in layer.parameters():
        tape.weight(parameter, width)
    frames = value
    if padded:
        tape.keep(tape.new(2, batch, time, width=LONG))
        frames = move(tape, [value], *value.shape, steps=0)
    tape.keep(frames)
    normed = tape.run("norm", [frames], *value.shape, steps=log2(batch * time) * 2 + 5)
    if padded:
        tape.keep(tape.new(2, batch, time, width=LONG))
        normed = move(tape, [normed], *normed.shape, steps=0)
    return normed
