"""What recurrent layers and windows of neighbours cost.

    recurrent   item t of what a layer writes is ready one step of its cell after item t - 1; layers
                of one direction flow into each other, so L of them take O(T + L)
    windows     no item waits for another of its layer: O(L), however long the row

The walk follows `harken.layers.recurrent` and `harken.layers.convolution`. What the recurrent
kernels of PyTorch keep was measured (2.13, CPU): there is no formula for it but their source.
"""

from dataclasses import replace
from itertools import pairwise

from torch import nn

from harken.cost.expression import Expression, Size, larger, quotient, symbol
from harken.cost.operations import add, bend, convolve, drop, hide, like, move
from harken.cost.tape import FLOAT, LONG, Kind, Tape, Value, view, whole
from harken.layers.convolution import Convolutions, StrideTwo, WayDown, WayUp
from harken.layers.recurrent import Recurrent, RecurrentCell

GATES = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4}
KINDS: dict[type, Kind] = {nn.RNN: "tanh", nn.GRU: "gru", nn.LSTM: "lstm"}
BENDS = {nn.RNN: 2, nn.GRU: 6, nn.LSTM: 6}  # elementwise steps of one item


def recurrence(tape: Tape, layer: nn.RNNBase, value: Value, *, padded: bool) -> Value:
    """One layer, left to right; the products with its inputs wait for nothing and come before."""
    batch, time, width = value.shape
    hidden, gates, kind = state_width(layer, width), GATES[type(layer)], KINDS[type(layer)]
    weigh(tape, layer, width, hidden)
    if kind == "lstm" and padded:
        # One more input says where nothing is present; weights with its column are made anew.
        value = move(tape, [value], batch, time, width + 1, steps=0)
        tape.keep(tape.new(hidden * gates, width + 1))
    step = tape.inner(hidden) + BENDS[type(layer)]
    written = tape.run(
        kind,
        [value],
        batch,
        time,
        hidden,
        steps=tape.inner(width) + step,
        products=batch * time * (width + hidden) * hidden * (2 * gates),
        gradients=2,
        learned=True,
        moved=(width + hidden) * hidden * gates * FLOAT,
    )
    tape.keep(value, *kept_states(tape, kind, batch * time, value.shape[2], hidden, written))
    tape.passing.append(batch * time * hidden * ((gates + 1) * FLOAT))  # of the gates, of states
    if padded:
        written = hide(tape, written, batch, time)
    return replace(written, pace=larger(written.pace, step))


def kept_states(
    tape: Tape, kind: Kind, items: Expression, width: Expression, hidden: Expression, written: Value
) -> list[Value]:
    """What the kernels of PyTorch keep of a row's states, as measured: the LSTM's most of all."""
    if kind == "tanh":
        return [written]
    if kind == "gru":
        return [tape.new(items, hidden * 7)]
    own, read = int(hidden.value({})), int(width.value({}))
    return [written, tape.new(items, 9 * padded_row(own) + 6 * padded_row(max(own, read)))]


def padded_row(width: int) -> int:
    """As oneDNN lays rows out: in cache lines of 16 numbers, and never a multiple of 256."""
    lines = -(-width // 16) * 16
    return lines if lines % 256 else lines + 16


def state_width(layer: nn.RNNBase, width: Expression) -> Expression:
    """H."""
    return like(layer.hidden_size, width)


def weigh(tape: Tape, layer: nn.RNNBase, width: Expression, hidden: Expression) -> None:
    """The weights of one layer."""
    gates, (weights,) = GATES[type(layer)], layer.all_weights
    shapes: list[tuple[Size, ...]] = [(hidden * gates, width), (hidden * gates, hidden)]
    shapes += [(hidden * gates,)] * (len(weights) - 2)
    for parameter, shape in zip(weights, shapes, strict=True):
        tape.weight(parameter, *shape)


def recurrent(tape: Tape, layers: Recurrent, value: Value, *, padded: bool) -> Value:
    """Layers of one way flow into each other item by item; both ways wait for each other's end."""
    if padded:
        value = hide(tape, value, value.shape[0], value.shape[1])
    ways = [one for one in (layers.forwards, layers.backwards) if one is not None]
    chain = [value.first]
    for depth in range(layers.depth):
        if depth > 0:
            value = drop(tape, value, layers.dropout)
        written = []
        for way in ways:
            backwards = way is layers.backwards
            read = turn(tape, value, padded=padded) if backwards else value
            layer = way[depth]
            assert isinstance(layer, nn.RNNBase)
            states = recurrence(tape, layer, read, padded=padded)
            written.append(turn(tape, states, padded=padded) if backwards else states)
        value = written[0]
        if len(written) == 2:
            both = [whole(one) for one in written]
            joined = both[0].shape[2] + both[1].shape[2]
            value = move(tape, both, *both[0].shape[:2], joined, steps=0)
        chain.append(value.first)
    return replace(value, first=by_layer(chain))


def by_layer(chain: list[Expression]) -> Expression:
    """The end of a chain in terms of L; the first layer, which may read another width, is apart."""
    steps = [after - before for before, after in pairwise(chain)]
    layers = symbol("L", len(steps))
    if len(set(steps)) == 1:
        return chain[0] + steps[0] * layers
    if len(set(steps[1:])) == 1:
        return chain[1] + steps[1] * (layers - 1)
    return chain[-1]


def turn(tape: Tape, value: Value, *, padded: bool) -> Value:
    """Each row from its end; a stack that reads only from the right is turned as a whole."""
    if padded and value.learned:
        tape.keep(tape.new(value.shape[0], value.shape[1], width=LONG))
    return tape.run("gather", [value], *value.shape, steps=0)


def cell(tape: Tape, layers: RecurrentCell, value: Value) -> Value:
    """One item through all layers: B J -> B H."""
    for depth, layer in enumerate(layers.forwards):
        assert isinstance(layer, nn.RNNBase)
        if depth > 0:
            value = drop(tape, value, layers.dropout)
        batch, width = value.shape
        hidden, gates = state_width(layer, width), GATES[type(layer)]
        weigh(tape, layer, width, hidden)
        written = tape.run(
            "cell",
            [value],
            batch,
            hidden,
            steps=tape.inner(width) + BENDS[type(layer)],
            products=batch * (width + hidden) * hidden * (2 * gates),
            gradients=2,
            learned=True,
            moved=(width + hidden) * hidden * gates * FLOAT,
        )
        tape.keep(value, tape.new(batch, hidden * (2 if gates == 1 else 7)))
        value = written
    return value


def convolutions(tape: Tape, layers: Convolutions, value: Value, *, padded: bool) -> Value:
    """Windows that keep the length."""
    batch, time, width = value.shape
    value = whole(hide(tape, value, batch, time) if padded else value)
    rows = view(value, batch, width, time)
    chain = [rows.first]
    for kernel, reach in zip(layers.kernels, layers.reaches, strict=True):
        assert isinstance(kernel, nn.Conv1d)
        window = move(tape, [drop(tape, rows, layers.dropout)], batch, width, time + reach, steps=0)
        writes = like(kernel.out_channels, width)
        read = convolve(tape, kernel, window, batch, writes, time, reads=width, writes=writes)
        gated = kernel.out_channels != kernel.in_channels
        bent = bend(tape, read, keeps="input" if gated else "output", steps=2 if gated else 1)
        rows = add(tape, rows, replace(bent, shape=rows.shape))
        rows = hide(tape, rows, batch, time) if padded else rows
        chain.append(rows.first)
    return view(replace(rows, first=by_layer(chain)), batch, time, width)


def pyramid(tape: Tape, layers: StrideTwo, value: Value, *, padded: bool) -> Value:
    """Down, each level half as long, and back up."""
    batch, time, width = value.shape
    value = whole(hide(tape, value, batch, time) if padded else value)
    levels = way_down(tape, layers.down, view(value, batch, width, time), padded=padded)
    top = replace(levels[-1], first=by_layer([one.first for one in levels]))
    raised = way_up(tape, layers.up, [*levels[:-1], top], padded=padded)
    chain = by_layer([one.first for one in raised])
    return view(replace(raised[-1], first=chain), batch, time, width)


def way_down(tape: Tape, layers: WayDown, rows: Value, *, padded: bool) -> list[Value]:
    """From the tokens to the top."""
    batch, width, time = rows.shape
    levels = [rows]
    for depth, (kernel, threshold) in enumerate(
        zip(layers.kernels, layers.thresholds, strict=True)
    ):
        assert isinstance(kernel, nn.Conv1d)
        window = drop(tape, rows, layers.dropout)
        if layers.edges[0] != layers.edges[1]:
            window = move(tape, [window], batch, width, window.shape[2] + 1, steps=0)
        tape.weight(threshold, width)
        shape = (batch, width, quotient(time, 2 ** (depth + 1)))
        read = convolve(tape, kernel, window, *shape, reads=width, writes=width)
        rows = bend(tape, read, keeps="output")
        rows = hide(tape, rows, batch, shape[2]) if padded else rows
        levels.append(rows)
    return levels


def way_up(tape: Tape, layers: WayUp, levels: list[Value], *, padded: bool) -> list[Value]:
    """From the top to the tokens."""
    raised_levels = [levels[-1]]
    for depth in reversed(range(len(layers.kernels))):
        level, kernel = levels[depth], layers.kernels[depth]
        assert isinstance(kernel, nn.ConvTranspose1d)
        batch, width, places = level.shape
        tape.weight(layers.thresholds[depth], width)
        read = drop(tape, raised_levels[-1], layers.dropout)
        raised = convolve(tape, kernel, read, batch, width, places, reads=width, writes=width)
        merged = bend(tape, add(tape, raised, level), keeps="output")
        raised_levels.append(hide(tape, merged, batch, places) if padded else merged)
    return raised_levels
