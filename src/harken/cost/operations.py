"""Each kind of operation says once what it computes, what it keeps and how long its chain is.

    steps        an elementwise operation 1; a sum over n terms ⌈log2 n⌉; an inner product over n
                 one more, or n where inner products are serial
    products     2 floating-point operations for each multiply-and-add, as PyTorch's counter has it
    kept         what autograd saves for the backward pass, besides weights

Layers made of these are in `attention.py` and `layers.py`.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from torch import nn

from harken.cost.expression import Expression, Size, log2, of
from harken.cost.tape import BOOL, FLOAT, LONG, Tape, Value, whole

PLAIN = 16  # a width is written as a fraction of J where its denominator is no larger


def like(size: int, width: Expression) -> Expression:
    """A size of the model in terms of another one, such as 4 J, where that is plain."""
    ratio = Fraction(size) / width.value({})
    return width * of(ratio) if ratio.denominator <= PLAIN else of(size)


def numbers(tape: Tape, *shape: Size) -> Value:
    """Token numbers, positions: integers that are known from the start."""
    return tape.new(*shape, width=LONG)


def linear(tape: Tape, layer: nn.Linear, value: Value, writes: Size) -> Value:
    """W x + b over the last axis."""
    *rows, reads = value.shape
    tape.weight(layer.weight, reads, writes)
    if layer.bias is not None:
        tape.weight(layer.bias, writes)
    return project(tape, value, *rows, writes, offset=layer.bias is not None)


def project(tape: Tape, value: Value, *shape: Size, offset: bool = False) -> Value:
    """Rows of a value times a matrix that is learnt; the matrix is counted elsewhere."""
    reads, writes = value.shape[-1], of(shape[-1])
    rows = of(1)
    for size in value.shape[:-1]:
        rows = rows * size
    tape.keep(value)
    return tape.run(
        "linear",
        [value],
        *shape,
        steps=tape.inner(reads) + int(offset),
        products=value.numbers * writes * 2,
        sides=(rows, reads, writes),
        gradients=2 if value.learned else 1,
        learned=True,
        moved=reads * writes * FLOAT,
    )


def multiply(
    tape: Tape, left: Value, right: Value, *shape: Size, over: Size, over_time: bool = False
) -> Value:
    """A product of two values, summed over an axis of this size.

    A sum over time is a sum and no inner product of features, so it is never serial.
    """
    steps = log2(over) + 1 if over_time else tape.inner(over)
    written = of(1)
    for size in shape:
        written = written * size
    for one, other in ((left, right), (right, left)):
        if one.learned:
            tape.keep(other)
    return tape.run(
        "product",
        [left, right],
        *shape,
        steps=steps,
        products=written * over * 2,
        gradients=left.learned + right.learned,
    )


def bend(tape: Tape, value: Value, *, keeps: str = "input", steps: int = 1) -> Value:
    """A function of every number: gelu keeps what it read, relu and tanh what they wrote."""
    written = tape.run("bend", [value], *value.shape, steps=steps)
    if value.learned:
        tape.keep(value if keeps == "input" else written)
    return written


def move(tape: Tape, values: Sequence[Value], *shape: Size, steps: int = 1) -> Value:
    """Sums, copies, shifts: all that keeps nothing."""
    return tape.run("move", values, *shape, steps=steps)


def add(tape: Tape, left: Value, right: Value) -> Value:
    """A sum keeps nothing."""
    return move(tape, [left, right], *left.shape)


def scale(tape: Tape, left: Value, right: Value) -> Value:
    """Number by number; the right one may be smaller."""
    for one, other in ((left, right), (right, left)):
        if one.learned:
            tape.keep(other)
    return move(tape, [left, right], *left.shape)


def hide(tape: Tape, value: Value, *flags: Size) -> Value:
    """`masked_fill` by a table of truth values of these sizes."""
    if value.learned:
        tape.keep(tape.new(*flags, width=BOOL))
    return move(tape, [value], *value.shape)


def normalise(tape: Tape, layer: nn.Module, value: Value) -> Value:
    """Two sums over the features and some five elementwise steps."""
    *rows, features = value.shape
    for parameter in layer.parameters():
        tape.weight(parameter, features)
    statistics = of(1)
    for size in rows:
        statistics = statistics * size
    tape.keep(value, tape.new(statistics, 2))
    if not isinstance(layer, nn.LayerNorm):  # its parts are apart: x, and gain over size
        tape.keep(tape.new(*value.shape))
    steps = (features if tape.serial else log2(features)) * 2 + 5
    return tape.run("norm", [value], *value.shape, steps=steps, learned=True)


def softmax(tape: Tape, value: Value, *, keep: bool = True) -> Value:
    """Largest, difference, exponential, sum, quotient: two sums over the last axis."""
    written = tape.run("bend", [value], *value.shape, steps=log2(value.shape[-1]) * 2 + 3)
    if value.learned and keep:
        tape.keep(written)
    return written


def drop(tape: Tape, value: Value, layer: nn.Module) -> Value:
    """Dropout of either kind, as it is in training: a mask of floats is kept."""
    share = layer.p if isinstance(layer, nn.Dropout) else 1 - getattr(layer, "kept", 0) / (1 << 16)
    return value if share == 0 else drop_share(tape, value)


def drop_share(tape: Tape, value: Value) -> Value:
    """Some numbers made zero."""
    if value.learned:
        tape.keep(tape.new(*value.shape))
    return tape.run("draw", [value], *value.shape)


def embed(tape: Tape, table: nn.Embedding, tokens: Value, entries: Size, width: Size) -> Value:
    """A row for each number; looking up is one step."""
    tape.weight(table.weight, entries, width)
    tape.keep(tokens)
    return tape.run("gather", [tokens], *tokens.shape, width, learned=True)


def pick(tape: Tape, value: Value, rows: Size) -> Value:
    """Rows of B T J by a table of truth values: N J, when all of them are ready."""
    if value.learned:
        tape.keep(tape.new(2, rows, width=LONG))
    return tape.run("gather", [whole(value)], rows, value.shape[-1])


def beside(tape: Tape, *values: Value) -> Value:
    """Set side by side along the last axis."""
    width = of(0)
    for one in values:
        width = width + one.shape[-1]
    return move(tape, values, *values[0].shape[:-1], width, steps=0)


def convolve(
    tape: Tape,
    layer: nn.Conv1d | nn.Conv2d | nn.ConvTranspose1d,
    value: Value,
    *shape: Size,
    reads: Size,
    writes: Size,
) -> Value:
    """Windows of neighbours, B channels places: an inner product over channels and window.

    `reads` and `writes` are channels; a transposed layer does its products where it reads.
    """
    within = of(reads).over(layer.groups) * math.prod(layer.kernel_size)
    tape.weight(layer.weight, within, writes)
    if layer.bias is not None:
        tape.weight(layer.bias, writes)
    places = of(1)
    for size in value.shape[2:] if isinstance(layer, nn.ConvTranspose1d) else shape[2:]:
        places = places * size
    tape.keep(value)
    return tape.run(
        "convolution",
        [value],
        *shape,
        steps=tape.inner(within) + 1,
        products=value.shape[0] * places * within * writes * 2,
        gradients=2 if value.learned else 1,
        learned=True,
        moved=within * writes * FLOAT,
    )


def entropy(tape: Tape, scores: Value) -> Value:
    """Cross-entropy of N V: a softmax, a look-up, and the sum over all that is counted."""
    rows, symbols = scores.shape
    logs = tape.run("loss", [scores], rows, symbols, steps=log2(symbols) * 2 + 3)
    tape.keep(logs, tape.new(rows, width=LONG))
    return move(tape, [logs], 1, steps=2)
