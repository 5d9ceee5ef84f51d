"""Parallel time: the longest chain of steps, each ready as soon as what it reads is.

    a sum over n terms            ⌈log2 n⌉ steps, an inner product one more, or n if it is serial
    self-attention                projections over J, scores over U, and three sums over time:
                                  the largest score, Z, and the mixture
    CNN                           a window of k J numbers a layer, however long the text
    RNN                           a step of the cell after the one before: T of them, and L - 1
                                  more, because a layer starts when the one below has read a token

The predicted side adds up these chains by hand. The measured side traces the library's own layer
(`cost/depth.py`).
"""

from collections.abc import Sequence

import torch
from torch import nn

from harken.attention.masks import NO_MASK
from harken.attention.multihead import AttentionContext, MultiHeadConfig
from harken.claims.claim import Case, Setting
from harken.cost.step import trace_forward
from harken.layers.convolution import ConvPyramidConfig, Downsample
from harken.layers.recurrent import TanhConfig

HEADS, WIDTH, KEY_WIDTH, SHORT, LONG, KERNEL = 8, 64, 16, 64, 4096, 3
TOKENS = 16  # that an RNN reads; a trace follows each of its steps


def tree(terms: int) -> int:
    """Steps of a sum in which any two may be added at once."""
    return (terms - 1).bit_length()


def attention_chain(time: int, width: int, key_width: int, *, serial: bool) -> int:
    """Project, compare, then softmax (largest, subtract, exponential, sum, divide), then mix."""
    project, compare = (terms if serial else 1 + tree(terms) for terms in (width, key_width))
    return project + compare + (2 * tree(time) + 3) + (1 + tree(time))


def attention_depth(time: int, width: int, key_width: int, *, serial: bool) -> int:
    """The same by tracing the library's layer; without W_O, as the sources have it.

    There are heads enough that values are never wider than keys, which the fused kernel would pad.
    """
    config = MultiHeadConfig(
        heads=HEADS, key_width=key_width, head_width=width // HEADS, output_matrix=False
    )
    tokens, positions = torch.empty(1, time, width), torch.arange(time)[None]
    context = AttentionContext(mask=NO_MASK, query_positions=positions, key_positions=positions)

    def forward(layer: nn.Module) -> object:
        return layer(tokens, context)

    cost = trace_forward(lambda _: config.build(width, LONG), forward)
    return cost.serial if serial else cost.depth


def attention(setting: Setting) -> Sequence[Case]:
    """T, J and U doubled, one at a time."""
    plain = (SHORT, WIDTH, KEY_WIDTH)
    cases = [
        Case(
            what=f"steps of a layer, {summing(serial)}",
            predicted=float(attention_chain(*plain, serial=serial)),
            measured=float(attention_depth(*plain, serial=serial)),
            tolerance=0.0,
        )
        for serial in (False, True)
    ]
    for what, before, after, parallel, serially in (
        (f"T from {SHORT}", plain, (2 * SHORT, WIDTH, KEY_WIDTH), 3, 3),
        (f"T from {LONG}", (LONG, WIDTH, KEY_WIDTH), (2 * LONG, WIDTH, KEY_WIDTH), 3, 3),
        ("J", plain, (SHORT, 2 * WIDTH, KEY_WIDTH), 1, WIDTH),
        ("U", plain, (SHORT, WIDTH, 2 * KEY_WIDTH), 1, KEY_WIDTH),
    ):
        for serial, predicted in ((False, parallel), (True, serially)):
            more = attention_depth(*after, serial=serial) - attention_depth(*before, serial=serial)
            cases.append(
                Case(
                    what=f"steps more with twice {what}, {summing(serial)}",
                    predicted=float(predicted),
                    measured=float(more),
                    tolerance=0.0,
                )
            )
    columns, rows = 16, 32
    cases.append(
        Case(
            what=f"steps over a map of {columns} x {rows}",
            predicted=float(attention_chain(columns * rows, WIDTH, KEY_WIDTH, serial=False)),
            measured=float(attention_depth(columns * rows, WIDTH, KEY_WIDTH, serial=False)),
            tolerance=0.0,
        )
    )
    return cases


def summing(serial: bool) -> str:
    """In words."""
    return "inner products serial" if serial else "sums as trees"


def sequences(setting: Setting) -> Sequence[Case]:
    """A CNN of stride 2 and stacked tanh RNNs, over twice the text and with twice the layers."""
    step = 1 + tree(WIDTH) + 2  # both products at once, their sum, tanh
    window = 1 + tree(KERNEL * WIDTH) + 2  # the product, the threshold, σ
    return [
        Case(what=what, predicted=float(predicted), measured=float(measured), tolerance=0.0)
        for what, predicted, measured in (
            ("CNN: steps more with twice T", 0, cnn(2 * SHORT, 3) - cnn(SHORT, 3)),
            ("CNN: steps more with twice L = 3", 3 * window, cnn(SHORT, 6) - cnn(SHORT, 3)),
            ("RNN: steps more with twice T", TOKENS * step, rnn(2 * TOKENS, 3) - rnn(TOKENS, 3)),
            (
                f"RNN: steps more with twice L = 3, T = {TOKENS}",
                3 * step,
                rnn(TOKENS, 6) - rnn(TOKENS, 3),
            ),
            (
                f"RNN: steps more with twice L = 3, T = {4 * TOKENS}",
                3 * step,
                rnn(4 * TOKENS, 6) - rnn(4 * TOKENS, 3),
            ),
        )
    ]


def cnn(time: int, layers: int) -> int:
    """Steps of a CNN without the way back up."""
    config = ConvPyramidConfig(layers=layers, kernel=KERNEL)
    tokens = torch.empty(1, time, WIDTH)
    return trace_forward(lambda _: Downsample(config, WIDTH), lambda layer: layer(tokens)).depth


def rnn(time: int, layers: int) -> int:
    """Steps of stacked layers."""
    config, tokens = TanhConfig(layers=layers), torch.empty(1, time, WIDTH)
    return trace_forward(lambda _: config.build(WIDTH), lambda layer: layer(tokens)).depth
