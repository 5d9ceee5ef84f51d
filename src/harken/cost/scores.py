"""What a score costs: queries, keys, and what compares them.

    dot, scaled        W_Q x and W_K x; the kernel multiplies them
    merged             x W~, k J numbers a token, against the tokens themselves
    additive           T S U numbers a head, each bent
    relative_product   a second product, with waves of the places, as a bias that is learnt
    synthesizer        rows over all places, from each token alone

The walk follows `harken.attention.scores`; kernels are in `attention.py`.
"""

from dataclasses import dataclass, replace

from torch import nn

from harken.attention.multihead import MultiHead
from harken.attention.pair import Pair
from harken.attention.scores import Additive, Merged, Product, Synthesized
from harken.attention.transformer_xl import RelativeProduct
from harken.cost.expression import Expression, of
from harken.cost.operations import (
    add,
    bend,
    like,
    linear,
    move,
    multiply,
    project,
    scale,
)
from harken.cost.tape import Tape, Value, view, whole
from harken.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """Who may look at whom, as sizes: the shadow of `Arrangement`."""

    table: tuple[Expression, Expression, Expression] | None = None  # of truth values: B T S, or 1
    causal: bool = False  # a flag of the fused kernel, where there is no table
    rows: Expression = of(1)  # of the batch that have positions of their own
    bias: Value | None = None  # B k T S of a position kind
    rotation: Value | None = None

    def dense(self, time: Expression, places: Expression) -> "Sight":
        """The same for a kernel that does not take the causal flag and needs the whole table."""
        if not self.causal or self.table is not None:
            return self
        return replace(self, table=(of(1), time, places))


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """Keys and values of what is looked at; keys are None for scores that have none."""

    keys: Value | None
    values: Value


def unknown(what: str, kind: str) -> UserError:
    """A part whose cost is not described here is refused, not costed as something else."""
    return UserError(
        f"{what} {kind!r}: its cost is not known",
        fix=f"choose a {what} that Harken comes with, or measure a step of `harken train`",
    )


def remember(
    tape: Tape, layer: MultiHead, memory: Value, sight: Sight | None, heads: Expression
) -> Remembered:
    """Keys and values, once for all queries."""
    if type(layer.score) not in (Product, Additive, Merged, Synthesized, RelativeProduct):
        raise unknown("score", layer.score_kind)
    memory = whole(memory)
    batch, time, width = memory.shape
    groups = like(layer.groups, heads)
    keys = None
    if isinstance(layer.score, Pair):
        flat = layer.score.to_keys.out_features // layer.groups
        written = linear(tape, layer.score.to_keys, memory, groups * joined(width, groups, flat))
        keys = view(written, batch, groups, time, joined(width, groups, flat))
    elif isinstance(layer.score, Merged):
        keys = view(memory, batch, 1, time, width)
    if keys is not None and sight is not None and sight.rotation is not None:
        keys = rotated(tape, keys, sight.rotation)
    if layer.to_values is None:
        return Remembered(keys=keys, values=view(memory, batch, 1, time, width))
    carried = joined(width, groups, layer.to_values.out_features // layer.groups)
    values = linear(tape, layer.to_values, memory, groups * carried)
    return Remembered(keys=keys, values=view(values, batch, groups, time, carried))


def joined(width: Expression, heads: Expression, own: int) -> Expression:
    """The width of a head: J / k where it is, else its number."""
    shared = width.over(heads)
    return shared if shared.value({}) == own else of(own)


def rotated(tape: Tape, heads: Value, rotation: Value) -> Value:
    """Halves swapped, two products, a sum; the angles are kept, not what is turned."""
    if heads.learned:
        tape.keep(rotation, tape.new(*rotation.shape))
    swapped = move(tape, [heads], *heads.shape, steps=0)
    return move(tape, [heads, swapped], *heads.shape, steps=3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """Queries and keys, or a bias in place of them, or both."""

    queries: Value | None
    keys: Value | None
    bias: Value | None


def compare(
    tape: Tape,
    layer: MultiHead,
    value: Value,
    seen: Remembered,
    sight: Sight,
    heads: Expression,
) -> Compared:
    """What a kernel is told; each score says here what it costs."""
    batch, time, width = value.shape
    places, score, keys, bias = seen.values.shape[2], layer.score, seen.keys, sight.bias
    queries = asked(tape, score, value, heads)
    if queries is not None and sight.rotation is not None:
        queries = rotated(tape, queries, sight.rotation)
    if isinstance(score, Additive) and queries is not None and keys is not None:
        own = queries.shape[3]
        tape.weight(score.direction, heads, own)
        pairs = move(tape, [queries, keys], batch, heads, time, places, own)
        bent = bend(tape, pairs, keeps="output")
        if layer.groups != layer.heads:  # keys that are written out lie in another order
            bent = move(tape, [bent], *bent.shape, steps=0)
        flat = project(tape, bent, batch, heads, time, places, 1)
        return Compared(
            queries=None, keys=None, bias=summed(tape, view(flat, batch, heads, time, places), bias)
        )
    if isinstance(score, RelativeProduct) and queries is not None:
        bias = summed(tape, distances(tape, score, queries, width, places, sight.rows), bias)
        queries = move(tape, [queries], *queries.shape)
    elif isinstance(score, Synthesized):
        bias = summed(tape, synthesized(tape, score, value, heads, places, sight.rows), bias)
    return Compared(queries=queries, keys=keys, bias=bias)


def asked(tape: Tape, score: object, value: Value, heads: Expression) -> Value | None:
    """Queries B k T U; None for scores that have none."""
    batch, time, width = value.shape
    if isinstance(score, Pair):
        own = joined(width, heads, score.to_queries.out_features // score.heads)
        flat = linear(tape, score.to_queries, value, heads * own)
        return view(flat, batch, heads, time, own)
    if isinstance(score, Merged):
        carried = like(score.unscaled.shape[2], width)
        tape.weight(score.unscaled, heads, width, carried)
        if len(score.unscaled) > 1:  # the product lays the matrices side by side, which copies
            tape.keep(tape.new(heads, width, carried))
        scaled = move(tape, [value], *value.shape, steps=0)
        flat = project(tape, scaled, batch, time, heads * carried)
        return view(flat, batch, heads, time, carried)
    return None


def summed(tape: Tape, bias: Value, other: Value | None) -> Value:
    """A score's bias with that of a position kind on top."""
    return bias if other is None else add(tape, bias, other)


def distances(
    tape: Tape,
    score: RelativeProduct,
    queries: Value,
    width: Expression,
    places: Expression,
    rows: Expression,
) -> Value:
    """(q + v) . r for every pair, by way of waves that turn with the place."""
    batch, heads, time, own = queries.shape
    tape.weight(score.to_distances.weight, width, heads * own)
    tape.weight(score.content_offset, heads, own)
    tape.weight(score.distance_offset, heads, own)
    offset = move(tape, [queries], *queries.shape, steps=2)
    asked = project(tape, offset, batch, heads, time, width)
    tape.keep(tape.new(batch, heads, own, width))  # the matrix, written out for each row
    waves = bend(tape, tape.new(rows, time, width), steps=2)
    tape.keep(waves)
    halves = [scale(tape, asked, waves), scale(tape, asked, waves)]
    turned = move(tape, halves, *asked.shape, steps=2)
    # Waves of each row are written out for every head, those of all rows are not.
    shape = (1, width, places) if rows == of(1) else (batch, heads, width, places)
    standing = move(tape, [waves], *shape, steps=0)
    return multiply(tape, turned, standing, batch, heads, time, places, over=width)


def synthesized(
    tape: Tape,
    score: Synthesized,
    value: Value,
    heads: Expression,
    places: Expression,
    rows: Expression,
) -> Value:
    """Rows of scores from each token alone, or learned; `rows` of the batch have own positions."""
    batch, time, _ = value.shape
    if score.from_token is None or score.table is not None:
        assert score.table is not None
        length = score.table.shape[-1]
        tape.weight(score.table, heads, length, length)
        chosen = tape.run("gather", [], rows, heads, time, length, learned=True)
        if rows != of(1):
            tape.keep(chosen)
        return tape.run("gather", [chosen], rows, heads, time, places)
    assert isinstance(score.from_token, nn.Sequential)
    first = score.from_token[0]
    assert isinstance(first, nn.Linear)
    own, length = score.to_scores.shape[1:]
    hidden = bend(tape, linear(tape, first, value, heads * own), keeps="output")
    tape.weight(score.to_scores, heads, own, length)
    tape.weight(score.score_offsets, heads, 1, length)
    laid = move(tape, [hidden], batch, heads, time, own, steps=0)
    if heads.value({}) > 1:  # the matrix, written out for each row
        tape.keep(tape.new(batch, heads, own, length))
    scores = project(tape, laid, batch, heads, time, length, offset=True)
    if rows != of(1):
        tape.keep(scores)
    return tape.run("gather", [scores], batch, heads, time, places)
