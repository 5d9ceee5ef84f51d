"""What writing about a memory costs, the output known as it is in training: B T and B M J -> loss.

A Transformer's decoder does all places at once; the RNN that looks back takes one after the other,
each a look at M places and a step of the cell. The walk follows `harken.models.decoder` and
`harken.models.attentive_decoder`.
"""

from dataclasses import replace

from torch import nn

from harken.cost.attention import enter, look, sight_of, weights_of
from harken.cost.expression import Expression, larger, of, symbol
from harken.cost.layers import block, heads_of, stack
from harken.cost.operations import (
    bend,
    beside,
    convolve,
    drop,
    embed,
    entropy,
    like,
    linear,
    move,
    numbers,
    pick,
    project,
)
from harken.cost.scores import Sight, compare, remember
from harken.cost.sequences import cell
from harken.cost.tape import Tape, Value, view, whole
from harken.layers.transformer import TransformerBlock
from harken.models.attentive_decoder import AttentiveDecoder, Location
from harken.models.decoder import TransformerDecoder

B, T = symbol("B"), symbol("T")


def width_of(table: nn.Embedding) -> Expression:
    """J, the width of word vectors."""
    return symbol("J", table.embedding_dim)


def entries(table: nn.Embedding) -> Expression:
    """V, the size of the vocabulary."""
    return symbol("V", table.num_embeddings)


def written(tape: Tape, decoder: TransformerDecoder | AttentiveDecoder, memory: Value) -> Value:
    """The decoder's loss, its output known."""
    known, width = entries(decoder.embedding), width_of(decoder.embedding)
    tokens = embed(tape, decoder.embedding, numbers(tape, B, T), known, width)
    if isinstance(decoder, TransformerDecoder):
        states = transformer_decoder(tape, decoder, tokens, memory)
        return entropy(tape, linear(tape, decoder.reader, pick(tape, states, B * T), known))
    states = attentive_decoder(tape, decoder, tokens, memory)
    words = linear(tape, decoder.to_words, pick(tape, states, B * T), width)
    return entropy(tape, project(tape, words, B * T, known))


def transformer_decoder(
    tape: Tape, decoder: TransformerDecoder, tokens: Value, memory: Value
) -> Value:
    """Causal blocks that look at the memory; every layer has keys and values of its own of it."""
    first = decoder.stack.blocks[0]
    assert isinstance(first, TransformerBlock) and first.cross is not None
    heads, cross = heads_of(first.attention), first.cross
    sight = sight_of(tape, decoder.position, heads, 1, T, None, causal=True)
    across = Sight(table=(B, of(1), memory.shape[1]))
    memory = whole(memory)
    value = drop(tape, enter(tape, decoder.position, tokens, 1), decoder.dropout)
    value = replace(value, first=larger(value.first, memory.first))

    def follow(layer: TransformerBlock, entered: Value) -> Value:
        return block(
            tape, layer, entered, sight, remember(tape, cross, memory, None, heads), across
        )

    return stack(tape, decoder.stack, value, follow)


def attentive_decoder(tape: Tape, decoder: AttentiveDecoder, tokens: Value, memory: Value) -> Value:
    """Look, then step, T times over: each waits for the state before it."""
    memory = whole(memory)
    batch, places, reads = memory.shape
    hidden = like(decoder.cell.hidden, tokens.shape[2])
    heads = heads_of(decoder.attention)
    seen = remember(tape, decoder.attention, memory, None, heads)
    start = memory
    if decoder.first is not None:
        source = view(memory, batch, like(decoder.first.in_features, reads))
        start = linear(tape, decoder.first, source, hidden)
    location, known = decoder.location, memory
    if location is not None:
        known = linear(tape, location.from_memory, memory, location.from_query.out_features)
    with tape.repeated(T):
        began = replace(
            tape.new(batch, 1, hidden, learned=True),
            first=larger(start.first, tokens.first, seen.values.first),
        )
        sight = Sight(table=(batch, of(1), places))
        if location is not None:
            sight = replace(sight, bias=located(tape, location, began, known))
        context = look(tape, decoder.attention, began, seen, sight, heads)
        if location is not None:  # the weights are formed once more, for the next step to feel
            compared = compare(tape, decoder.attention, began, seen, sight, heads)
            looked = weights_of(tape, compared, sight, batch, heads, of(1), places)
            context = replace(context, first=larger(context.first, looked.first))
        word = replace(tape.new(batch, tokens.shape[2], learned=True), first=tokens.first)
        read = beside(tape, view(context, batch, context.shape[2]), word)
        output = cell(tape, decoder.cell, drop(tape, read, decoder.dropout))
    step = output.first - began.first
    joined = move(tape, [replace(output, count=of(1))], batch, T, hidden, steps=0)
    return replace(joined, first=began.first + step, pace=step)


def located(tape: Tape, location: Location, query: Value, known: Value) -> Value:
    """v . tanh(q + k + U f), f a convolution of the last weights."""
    batch, places, hidden = known.shape
    channels = location.feel.out_channels
    last = replace(tape.new(batch, 1, places, learned=True), first=query.first)
    felt = convolve(tape, location.feel, last, batch, channels, places, reads=1, writes=channels)
    felt = linear(tape, location.from_felt, view(felt, batch, places, channels), hidden)
    wanted = linear(tape, location.from_query, query, hidden)
    joined = bend(tape, move(tape, [felt, known, wanted], *known.shape, steps=2), keeps="output")
    return view(linear(tape, location.direction, joined, 1), batch, 1, 1, places)
