"""What attention costs: how queries and keys are compared, and how values are mixed.

The walk follows `harken.attention`: the same choice of kernels, the same copies. The fused kernel
keeps queries, keys, values, what it wrote and one number a query; the explicit one keeps the
weights, T S of them a head. Both multiply 4 T S U a head and row of the batch, for the scores and
for the mixture; what a causal mask lets the fused kernel leave out is not taken off.
"""

from dataclasses import replace

from torch import nn

from harken.attention.multihead import MultiHead
from harken.attention.positions import Entering, Fourier, Learned, Nowhere, Sinusoid
from harken.attention.relative import Alibi, Relative, Rotary
from harken.cost.expression import Expression, Size, log2, of, symbol
from harken.cost.operations import (
    add,
    bend,
    beside,
    drop_share,
    embed,
    hide,
    like,
    linear,
    move,
    multiply,
    numbers,
    softmax,
)
from harken.cost.scores import Compared, Remembered, Sight, compare, remember, unknown
from harken.cost.tape import Tape, Value, view, whole


def enter(tape: Tape, position: object, value: Value, rows: Size) -> Value:
    """Tokens that know where they stand; `rows` is how many rows have places of their own."""
    if not isinstance(position, Entering) or isinstance(position, Nowhere):
        return value
    batch, time, width = value.shape
    placed = tape.new(rows, time, width)
    if isinstance(position, Learned):
        parts = []
        for table in position.tables:
            assert isinstance(table, nn.Embedding)
            share = like(table.embedding_dim, width)
            known = symbol("N", table.num_embeddings)
            parts.append(embed(tape, table, numbers(tape, rows, time), known, share))
        placed = parts[0] if len(parts) == 1 else beside(tape, *parts)
    else:
        placed = bend(tape, placed)
    if position.place == "add":
        return add(tape, value, placed)
    return beside(tape, value, view(placed, batch, time, width))


def sight_of(
    tape: Tape,
    position: object,
    heads: Size,
    rows: Size,
    time: Size,
    table: tuple[Size, Size, Size] | None,
    *,
    causal: bool = False,
) -> Sight:
    """What a position kind adds inside the heads, made once for all layers."""
    plain = Sight(
        table=None if table is None else (of(table[0]), of(table[1]), of(table[2])),
        causal=causal,
        rows=of(rows),
    )
    if isinstance(position, Rotary):
        turned = tape.new(rows, time, position.key_width)
        return replace(plain, rotation=bend(tape, turned, steps=2))
    if isinstance(position, Alibi):
        return replace(plain, bias=move(tape, [], rows, heads, time, time, steps=2))
    if isinstance(position, Relative):
        shape = (rows, time, time)
        parts = [
            embed(tape, one, numbers(tape, *shape), one.num_embeddings, heads)
            for one in position.tables
            if isinstance(one, nn.Embedding)
        ]
        added = move(tape, parts, rows, heads, time, time, steps=1)
        return replace(plain, bias=added)
    if type(position) not in (Learned, Sinusoid, Fourier, Nowhere):
        raise unknown("position", type(position).__name__)
    return plain


def attend(tape: Tape, layer: MultiHead, value: Value, sight: Sight, heads: Expression) -> Value:
    """Self-attention: B T J -> B T J."""
    value = whole(value)
    return look(tape, layer, value, remember(tape, layer, value, sight, heads), sight, heads)


def look(
    tape: Tape, layer: MultiHead, value: Value, seen: Remembered, sight: Sight, heads: Expression
) -> Value:
    """Mix what is remembered, by the score of each input with each of it."""
    batch, time, width = value.shape
    compared = compare(tape, layer, value, seen, sight, heads)
    queries, keys, bias = compared.queries, compared.keys, compared.bias
    learns = bias is not None and bias.learned
    if queries is None or keys is None or layer.dropout > 0 or learns:
        dense = sight.dense(time, seen.values.shape[2])
        weights = weights_of(tape, compared, dense, batch, heads, time, seen.values.shape[2])
        mixed = mix(tape, layer, weights, seen.values, heads)
    else:
        mixed = fused(tape, queries, keys, bias, seen.values, sight)
    flat = view(mixed, batch, time, heads * mixed.shape[3])
    return flat if layer.join is None else linear(tape, layer.join, flat, width)


def fused(
    tape: Tape, queries: Value, keys: Value, bias: Value | None, values: Value, sight: Sight
) -> Value:
    """Scores, softmax and mixture in one kernel."""
    batch, heads, time, own = queries.shape
    places, carried = keys.shape[2], values.shape[3]
    groups = max(keys.shape[1], values.shape[1], key=lambda one: one.value({}))
    wide = max(own, carried, key=lambda one: one.value({}))
    padded = []
    for one in (queries, keys, values):
        shape = (batch, heads if one is queries else groups, one.shape[2], wide)
        own_heads, own_width = one.shape[1].value({}), one.shape[3].value({})
        # One key for all heads is read many times, where it lies.
        shared = own_heads == 1 or own_heads == shape[1].value({})
        in_place = shared and own_width == wide.value({})
        padded.append(one if in_place else move(tape, [one], *shape, steps=0))
    allowed = 0
    if bias is not None:
        sight = sight.dense(time, places)
        tape.keep(bias if sight.table is None else hide(tape, bias, *sight.table))
        allowed = 1
    elif sight.table is not None:
        # A table of truth values is written out as numbers, row by row.
        tape.keep(tape.new(sight.table[0], time, places))
        allowed = 1
    written = tape.run(
        "attention",
        padded,
        batch,
        heads,
        time,
        wide,
        steps=tape.inner(own) + log2(places) * 2 + 3 + log2(places) + 1 + allowed,
        products=batch * heads * time * places * wide * 4,
        gradients=2,
    )
    if written.learned:
        tape.keep(*padded, written, tape.new(batch, heads, time))
    if sight.table is not None:
        written = hide(tape, written, sight.table[0])
    return replace(written, shape=(batch, heads, time, carried))


def weights_of(
    tape: Tape,
    compared: Compared,
    sight: Sight,
    batch: Expression,
    heads: Expression,
    time: Expression,
    places: Expression,
) -> Value:
    """The attention itself, as the explicit kernel forms it."""
    queries, keys, scores = compared.queries, compared.keys, compared.bias
    if queries is not None and keys is not None:
        own = queries.shape[3]
        scaled = move(tape, [queries], *queries.shape)
        known = laid(tape, keys, batch, heads, places, own)
        product = multiply(tape, scaled, known, batch, heads, time, places, over=own)
        scores = product if scores is None else add(tape, product, scores)
    assert scores is not None, "a score gives queries and keys, a bias, or both"
    if sight.table is not None:
        if sight.table[0] != of(1):  # equal scores of all rows differ behind a mask of each row
            scores = view(scores, batch, heads, time, places)
        scores = hide(tape, hide(tape, scores, *sight.table), sight.table[0])
    weights = softmax(tape, scores)
    return weights if sight.table is None else hide(tape, weights, sight.table[0])


def mix(tape: Tape, layer: MultiHead, weights: Value, values: Value, heads: Expression) -> Value:
    """Values by their weights; a row of weights may serve all of the batch."""
    batch, _, places, carried = values.shape
    shape = (batch, heads, weights.shape[2])
    dropped = layer.dropout > 0
    if weights.shape[0] != batch and (dropped or heads.value({}) > 1):
        weights = move(tape, [weights], *shape, places, steps=0)
    weights = drop_share(tape, weights) if dropped else weights
    served = laid(tape, values, batch, heads, places, carried)
    return multiply(tape, weights, served, *shape, carried, over=places, over_time=True)


def laid(tape: Tape, value: Value, *shape: Expression) -> Value:
    """Heads and rows of the batch in one row, as a product wants them: a copy, unless k is 1."""
    return view(value, *shape) if shape[1].value({}) == 1 else move(tape, [value], *shape, steps=0)
