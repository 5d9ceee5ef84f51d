"""How fast this machine is, measured once in a few seconds: a table of times for each kind of work.

A table holds what the forward and backward pass of one operation take together, by its size:
floating-point operations of the forward pass for products, bytes moved for all else. Products with
learned matrices have a table for each length of their shortest side, which decides how fast they
are. Between two sizes a time is interpolated on logarithmic axes; below the smallest it is that of
the smallest (the overhead of a call), above the largest it grows in proportion. Nothing is stored:
another load on the machine is another machine.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harken.cost.tape import FLOAT, Kind
from harken.cost.walk import muon_products
from harken.layers.dropout import Dropout
from harken.layers.entropy import entropy
from harken.models.ctc import ctc_loss
from harken.training.optimiser import orthogonalise

SHORTEST = 0.01  # seconds that each measurement lasts at the least
ROUNDS = 3  # of which the median counts, as it does of the steps that are predicted


class Timed(NamedTuple):
    """One measurement."""

    size: float
    seconds: float


Table = Sequence[Timed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Tables by kind of operation, and the optimiser's by weights."""

    kinds: Mapping[Kind, Table]
    linear: Sequence[tuple[float, Table]]  # by the shortest side of the product, rising
    adamw: Table
    muon: Table  # one matrix, by floating-point operations

    def seconds(self, kind: Kind, size: float, shortest: float = math.inf) -> float:
        """Forward and backward pass of one operation of this size."""
        if kind != "linear":
            return interpolated(self.kinds[kind], size)
        sides = [Timed(side, interpolated(table, size)) for side, table in self.linear]
        return interpolated(sides, min(max(shortest, sides[0].size), sides[-1].size))


def interpolated(table: Table, size: float) -> float:
    """A time for a size between, below or above those measured."""
    first, last = table[0], table[-1]
    if size <= first.size:
        return first.seconds
    if size >= last.size:
        return last.seconds * size / last.size
    for left, right in pairwise(table):
        if size <= right.size:
            share = math.log(size / left.size) / math.log(right.size / left.size)
            return left.seconds * math.exp(share * math.log(right.seconds / left.seconds))
    raise AssertionError("sizes of a table rise")


def timed(size: float, work: Callable[[], object]) -> Timed:
    """The median of some rounds, each long enough for the clock."""
    work()
    started = time.perf_counter()
    work()
    once = max(time.perf_counter() - started, 1e-7)
    repeats = max(1, math.ceil(SHORTEST / once))
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        rounds.append((time.perf_counter() - started) / repeats)
    return Timed(size, statistics.median(rounds))


def learning(function: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], object]:
    """Forward and backward pass, with gradients for all inputs of real numbers."""
    for one in inputs:
        one.requires_grad_(one.is_floating_point())
    upstream = torch.ones_like(function(*inputs))
    return lambda: function(*inputs).backward(upstream)  # type: ignore[no-untyped-call]


def calibrate() -> Machine:
    """Some 5 seconds on an idle machine."""
    kinds: dict[Kind, Table] = {
        "product": [product_point(*one) for one in PRODUCTS],
        "attention": [attention_point(*one) for one in ATTENTION],
        "convolution": [convolution_point(*one) for one in CONVOLUTIONS],
        "tanh": [recurrent_point(nn.RNN, 1, *one) for one in RECURRENCES],
        "gru": [recurrent_point(nn.GRU, 3, *one) for one in RECURRENCES],
        "lstm": [recurrent_point(nn.LSTM, 4, *one) for one in RECURRENCES],
        "cell": [cell_point(*one) for one in CELLS],
        "bend": [moved_point(lambda one: F.gelu(one, approximate="tanh"), one) for one in MOVED],
        "move": [moved_point(lambda one: one + 1.0, one) for one in MOVED],
        "norm": [moved_point(lambda one: F.layer_norm(one, (WIDTH,)), one) for one in MOVED],
        "draw": [moved_point(Dropout(0.1).train(), one) for one in MOVED],
        "gather": [gathered_point(one) for one in MOVED],
        "loss": [loss_point(one) for one in (*MOVED, LARGE)],
        "alignments": [alignments_point(*one) for one in ALIGNMENTS],
    }
    return Machine(
        kinds=kinds,
        linear=[
            (float(one), [linear_point(one, side) for side in SIDES]) for one in SHORTEST_SIDES
        ],
        adamw=[adamw_point(one) for one in (1 << 14, 1 << 18, 1 << 21)],
        muon=[muon_point(side) for side in (16, 64, 128, 256, 512)],
    )


WIDTH = 256
MOVED = (1 << 12, 1 << 16, 1 << 19, 1 << 22)  # numbers
LARGE = 1 << 24  # the scores of a wide vocabulary
SHORTEST_SIDES, SIDES = (16, 64, 256), (32, 128, 512, 1536)  # of products with learned matrices
PRODUCTS = ((4, 16, 16), (16, 64, 32), (32, 128, 64), (32, 512, 64))  # heads, time, width
ATTENTION = ((4, 4, 16), (16, 32, 32), (32, 128, 64), (32, 512, 64))
CONVOLUTIONS = ((2, 16, 16), (8, 64, 64), (16, 128, 128), (16, 256, 256))  # rows, channels, time
RECURRENCES = ((2, 8, 32), (16, 32, 64), (32, 32, 128), (32, 64, 256))  # rows, time, width
ALIGNMENTS = ((4, 50, 500), (4, 100, 4000), (8, 100, 16000))  # rows, time, symbols
ALIKE = 4  # matrices of one shape
CELLS = ((2, 32), (16, 64), (64, 128), (64, 256))  # rows, width


def linear_point(shortest: int, side: int) -> Timed:
    """W x, a product of which one side is short and two are long."""
    values, weight = torch.randn(side, shortest), torch.randn(side, shortest)
    return timed(2.0 * side * side * shortest, learning(F.linear, values, weight))


def product_point(heads: int, length: int, width: int) -> Timed:
    """Q K^T, head by head."""
    left, right = torch.randn(heads, length, width), torch.randn(heads, width, length)
    return timed(2.0 * heads * length * length * width, learning(torch.bmm, left, right))


def attention_point(heads: int, length: int, width: int) -> Timed:
    """The fused kernel, every key seen."""
    parts = [torch.randn(1, heads, length, width) for _ in range(3)]
    size = 4.0 * heads * length * length * width
    return timed(size, learning(F.scaled_dot_product_attention, *parts))


def convolution_point(rows: int, channels: int, length: int) -> Timed:
    """Windows of three places."""
    values, weight = torch.randn(rows, channels, length), torch.randn(channels, channels, 3)
    size = 6.0 * rows * channels * channels * (length - 2)
    return timed(size, learning(F.conv1d, values, weight))


def recurrent_point(
    kind: type[nn.RNN] | type[nn.GRU] | type[nn.LSTM],
    gates: int,
    rows: int,
    length: int,
    width: int,
) -> Timed:
    """A layer over whole rows."""
    layer = kind(width, width, batch_first=True)
    size = 4.0 * gates * rows * length * width * width
    return timed(size, learning(lambda one: layer(one)[0], torch.randn(rows, length, width)))


def cell_point(rows: int, width: int) -> Timed:
    """One step of a gated cell."""
    layer = nn.GRUCell(width, width)
    state = torch.randn(rows, width)
    return timed(12.0 * rows * width * width, learning(layer, torch.randn(rows, width), state))


def moved_point(function: Callable[[Tensor], Tensor], numbers: int) -> Timed:
    """What reads and writes each number once, by bytes."""
    values = torch.randn(numbers // WIDTH, WIDTH)
    return timed(2.0 * numbers * FLOAT, learning(function, values))


def gathered_point(numbers: int) -> Timed:
    """Rows of a table, by bytes."""
    rows = torch.randint(0, 4096, (numbers // WIDTH,))
    size = float(numbers * FLOAT + len(rows) * 8)
    return timed(size, learning(F.embedding, rows, torch.randn(4096, WIDTH)))


def loss_point(numbers: int) -> Timed:
    """Cross-entropy, by bytes."""
    scores, wanted = torch.randn(numbers // WIDTH, WIDTH), torch.zeros(numbers // WIDTH).long()
    return overwriting(2.0 * numbers * FLOAT, lambda one: entropy(one, wanted).sum(), scores)


def alignments_point(rows: int, length: int, symbols: int) -> Timed:
    """CTC, by bytes of the scores."""
    scores, wanted = torch.randn(rows, length, symbols), torch.ones(rows, 8, dtype=torch.long)
    present, said = torch.ones(rows, length).bool(), torch.ones(rows, 8).bool()
    size = float(scores.numel() * FLOAT)
    return overwriting(size, lambda one: ctc_loss(one, present, wanted, said, blank=0), scores)


def overwriting(size: float, function: Callable[[Tensor], Tensor], values: Tensor) -> Timed:
    """What writes over its input gets a copy each time, and the copy's own time is taken off."""
    whole = timed(size, learning(lambda one: function(one * 1.0), values))
    copy = timed(size, learning(lambda one: one * 1.0, values))
    return Timed(size, max(whole.seconds - copy.seconds, whole.seconds / 10))


def adamw_point(weights: int) -> Timed:
    """One step of the optimiser, by weights."""
    parameter = nn.Parameter(torch.randn(weights))
    parameter.grad = torch.randn(weights)
    return timed(float(weights), torch.optim.AdamW([parameter], fused=True).step)


def muon_point(side: int) -> Timed:
    """A matrix of several that are made orthogonal together."""
    alike = torch.randn(ALIKE, side, side)
    whole = timed(float(muon_products(side, side)), lambda: orthogonalise(alike))
    return Timed(whole.size, whole.seconds / ALIKE)
