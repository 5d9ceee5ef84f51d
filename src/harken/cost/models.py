"""What a step of training costs for each model: from token numbers, frames or pixels to the loss.

    B T      rows and their tokens         M   places of what a decoder looks at
    S F      frames and their features     N   distinct words that are spelt, each of W letters

Rows are taken to be full: padding is counted as if it were text, for the machine does it all the
same. Only the forward pass is walked; what follows from it for the backward pass is in `walk.py`.
"""

from torch import nn

from harken.cost.attention import enter, sight_of
from harken.cost.decoders import B, T, entries, width_of, written
from harken.cost.expression import Expression, larger, log2, of, quotient, smaller, symbol
from harken.cost.layers import block, conformer, heads_of, stack
from harken.cost.operations import (
    add,
    bend,
    beside,
    convolve,
    drop,
    embed,
    entropy,
    hide,
    like,
    linear,
    move,
    normalise,
    numbers,
    pick,
    project,
)
from harken.cost.sequences import convolutions, pyramid, recurrent
from harken.cost.tape import FLOAT, Tape, Value, view, whole
from harken.layers.conformer import ConformerBlock
from harken.layers.convolution import Convolutions, StrideTwo
from harken.layers.front import ConvolutionFront, MapFront, PatchFront, SpeechFront
from harken.layers.recurrent import Recurrent
from harken.layers.spatial import SpatialEncoder
from harken.layers.transformer import TransformerBlock
from harken.models.blank import MaskedBlank, RecurrentBlank
from harken.models.body import ConvolutionalBody, RecurrentBody, TransformerBody
from harken.models.captioner import Captioner
from harken.models.conformer_body import ConformerBody
from harken.models.ctc import CTC, TOGETHER
from harken.models.encoder_decoder import EncoderDecoder
from harken.models.fixed_state import FixedStateModel
from harken.models.language_model import LanguageModel
from harken.models.recogniser import Recogniser
from harken.models.tagger import ConvolvedCharacters, RecurrentCharacters, Tagger

M, FRAMES, LETTERS = symbol("M"), symbol("S"), symbol("W")
FREQUENCIES = symbol("F")


def body(tape: Tape, module: nn.Module, value: Value, *, padded: bool = True) -> Value:
    """Any body of `models/body.py`: B T J -> B T H."""
    batch, time, _ = value.shape
    table = (batch, of(1), time) if padded else None
    if isinstance(module, TransformerBody):
        rows = batch if padded else of(1)
        first = module.stack.blocks[0]
        assert isinstance(first, TransformerBlock)
        sight = sight_of(tape, module.position, heads_of(first.attention), rows, time, table)
        value = enter(tape, module.position, value, rows)
        if not isinstance(module.norm, nn.Identity):
            value = normalise(tape, module.norm, value)
        value = drop(tape, value, module.dropout)
        return stack(
            tape, module.stack, value, lambda one, entered: block(tape, one, entered, sight)
        )
    if isinstance(module, ConformerBody):
        layer = module.blocks[0]
        assert isinstance(layer, ConformerBlock)
        heads = heads_of(layer.attention)
        sight = sight_of(tape, module.position, heads, 1, time, table)
        value = drop(tape, enter(tape, module.position, value, 1), module.dropout)
        layers = symbol("L", len(module.blocks))
        return tape.stacked(
            layers, lambda one: conformer(tape, layer, one, sight, padded=padded), whole(value)
        )
    if isinstance(module, RecurrentBody):
        return recurrent(tape, module.recurrent, value, padded=padded)
    assert isinstance(module, ConvolutionalBody), f"{type(module)} is no body"
    return windows(tape, module.convolutions, value, padded=padded)


def windows(tape: Tape, module: nn.Module, value: Value, *, padded: bool) -> Value:
    """A pyramid, or layers that keep the length."""
    if isinstance(module, StrideTwo):
        return pyramid(tape, module, value, padded=padded)
    assert isinstance(module, Convolutions)
    return convolutions(tape, module, value, padded=padded)


def language_model(tape: Tape, model: LanguageModel | FixedStateModel) -> Value:
    """Tokens to the loss of the next one, every place counted."""
    width, known = width_of(model.embedding), entries(model.embedding)
    value = embed(tape, model.embedding, numbers(tape, B, T), known, width)
    if isinstance(model, LanguageModel):
        value = decoder_stack(tape, model, value)
    else:
        value = drop(tape, value, model.dropout)
        if isinstance(model.body, Recurrent):
            value = recurrent(tape, model.body, value, padded=False)
        else:
            value = convolutions(tape, model.body, value, padded=False)
        value = drop(tape, value, model.dropout)
    picked = pick(tape, value, B * T)
    return entropy(tape, linear(tape, model.reader, picked, known))


def decoder_stack(tape: Tape, model: LanguageModel, value: Value) -> Value:
    """Causal blocks; only the common mask has a kernel of its own."""
    first = model.stack.blocks[0]
    assert isinstance(first, TransformerBlock)
    plain = model.order == "causal" and model.window is None
    table = None if plain else (of(1), T, T)
    sight = sight_of(tape, model.position, heads_of(first.attention), 1, T, table, causal=plain)
    value = drop(tape, enter(tape, model.position, value, 1), model.dropout)
    return stack(tape, model.stack, value, lambda one, entered: block(tape, one, entered, sight))


def tagger(tape: Tape, model: Tagger) -> Value:
    """Words and spellings to the loss of their tags; every word of a batch is spelt once."""
    words = B * T
    own = model.words.embedding_dim
    spelt = 0
    if isinstance(model.characters, ConvolvedCharacters):
        spelt = model.characters.kernel.out_channels
    elif model.characters is not None:
        spelt = model.characters.recurrent.width
    width = symbol("J", own + spelt)
    value = embed(
        tape,
        model.words,
        numbers(tape, B, T),
        symbol("V", model.words.num_embeddings),
        like(own, width),
    )
    if model.neighbours is not None:
        tape.weight(model.neighbours.reader.weight, model.words.num_embeddings, own)
    if model.characters is not None:
        view_of = spelling(tape, model.characters, words)
        tape.keep(numbers(tape, B, T))
        placed = tape.run("gather", [view_of], B, T, spelt)
        value = beside(tape, value, placed)
        value = view(value, B, T, width)
    states = body(tape, model.body, drop(tape, value, model.dropout))
    tags = symbol("K", model.reader.out_features)
    scores = linear(tape, model.reader, drop(tape, states, model.dropout), tags)
    return entropy(tape, pick(tape, scores, B * T))


def spelling(
    tape: Tape, module: ConvolvedCharacters | RecurrentCharacters, words: Expression
) -> Value:
    """Letters to one vector a word."""
    width = of(module.embedding.embedding_dim)
    letters = numbers(tape, words, LETTERS)
    value = embed(tape, module.embedding, letters, module.embedding.num_embeddings, width)
    if isinstance(module, RecurrentCharacters):
        states = recurrent(tape, module.recurrent, value, padded=True)
        return view(whole(states), words, states.shape[2])
    value = hide(tape, value, words, LETTERS)
    reach = module.kernel.kernel_size[0] - 1
    window = move(tape, [value], words, width, LETTERS + reach, steps=0)
    writes = of(module.kernel.out_channels)
    seen = convolve(tape, module.kernel, window, words, writes, LETTERS, reads=width, writes=writes)
    bent = hide(tape, bend(tape, seen, keeps="output"), words, LETTERS)
    tape.keep(bent)
    loudest = tape.run("move", [bent], words, writes, steps=log2(LETTERS))
    tape.keep(loudest)
    return loudest


def blank_model(tape: Tape, model: RecurrentBlank | MaskedBlank, blanks: Expression) -> Value:
    """Words to the loss of those at the blanks."""
    width, known = width_of(model.embedding), entries(model.embedding)
    embedded = embed(tape, model.embedding, numbers(tape, B, T + 2), known, width)
    embedded = drop(tape, embedded, model.dropout)
    if isinstance(model, RecurrentBlank):
        sides = []
        for way, reader in (
            (model.forwards, model.from_left),
            (model.backwards, model.from_right),
        ):
            read = view(embedded, B, T, width)
            states = recurrent(tape, way, read, padded=True)
            picked = drop(tape, pick(tape, states, blanks), model.dropout)
            sides.append(linear(tape, reader, picked, width))
        chosen = add(tape, *sides)
    else:
        states = body(tape, model.body, embedded)
        picked = drop(tape, pick(tape, states, blanks), model.dropout)
        chosen = linear(tape, model.out, picked, width)
    return entropy(tape, project(tape, chosen, blanks, known))


def encoder_decoder(tape: Tape, model: EncoderDecoder) -> Value:
    """Source and target to the loss of what is written."""
    table = model.decoder.embedding if model.embedding is None else model.embedding
    width, known = width_of(table), entries(table)
    source = embed(tape, table, numbers(tape, B, M), known, width)
    memory = body(tape, model.encoder, drop(tape, source, model.dropout))
    return written(tape, model.decoder, memory)


def recogniser(tape: Tape, model: Recogniser) -> Value:
    """Frames to the losses of either way of writing."""
    width = symbol("J", model.front.join.out_features)
    value = speech_front(tape, model.front, width)
    if not isinstance(model.norm, nn.Identity):
        value = normalise(tape, model.norm, value)
    memory = body(tape, model.encoder, drop(tape, value, model.dropout))
    losses = []
    if model.ctc is not None:
        losses.append(aligned(tape, model.ctc, memory))
    if model.decoder is not None:
        losses.append(written(tape, model.decoder, memory))
    return move(tape, losses, 1)


def speech_front(tape: Tape, front: SpeechFront, width: Expression) -> Value:
    """Two convolutions over time and frequency; the first gives no gradient to the sound."""
    time, features = FRAMES, front.join.in_features
    bins = FREQUENCIES
    planes = tape.new(B, 1, time, bins)
    reads = 1
    for convolution, stride in zip((front.first, front.second), front.strides, strict=True):
        writes = convolution.out_channels
        time, bins = quotient(time, stride), quotient(bins, 2)
        seen = convolve(
            tape, convolution, planes, B, writes, time, bins, reads=reads, writes=writes
        )
        planes = hide(tape, bend(tape, seen, keeps="output"), B, time)
        reads = writes
    flat = move(tape, [planes], B, time, features, steps=0)
    return hide(tape, linear(tape, front.join, flat, width), B, time)


def aligned(tape: Tape, ctc: CTC, memory: Value) -> Value:
    """All alignments of a text at once: a chain over the memory, of T symbols and T + 1 blanks."""
    batch, places, _ = memory.shape
    symbols = symbol("V", ctc.reader.out_features)
    scores = linear(tape, ctc.reader, drop(tape, memory, ctc.dropout), symbols)
    steps = log2(symbols) * 2 + 3 + places * 3  # a softmax, then from place to place
    paths = tape.run("alignments", [whole(scores)], batch, places, T * 2 + 1, steps=steps)
    tape.keep(scores)  # where their gradient stands
    together = smaller(scores.numbers, larger(places * symbols, TOGETHER))
    tape.passing.append(together * (3 * FLOAT))  # their logarithms, two gradients
    return move(tape, [view(paths, 1)], 1)


def captioner(tape: Tape, model: Captioner) -> Value:
    """Pixels or maps to the loss of the caption."""
    width = symbol("J", model.norm.normalized_shape[0])
    places = symbol("X", model.front.columns) * symbol("Y", model.front.rows)
    value = image_front(tape, model.front, width, places)
    value = drop(tape, normalise(tape, model.norm, value), model.dropout)
    return written(tape, model.decoder, spatial(tape, model.encoder, value))


def spatial(tape: Tape, model: SpatialEncoder, value: Value) -> Value:
    """Attention over x and y at once: the softmax sums X Y terms."""
    _, places, _ = value.shape
    value = enter(tape, model.position, value, 1)
    if not model.stack.blocks:
        return drop(tape, value, model.dropout)
    first = model.stack.blocks[0]
    assert isinstance(first, TransformerBlock)
    sight = sight_of(tape, model.position, heads_of(first.attention), 1, places, None)
    value = drop(tape, value, model.dropout)
    return stack(tape, model.stack, value, lambda one, entered: block(tape, one, entered, sight))


def image_front(
    tape: Tape,
    front: PatchFront | ConvolutionFront | MapFront,
    width: Expression,
    places: Expression,
) -> Value:
    """Squares, a small CNN, or a map that is ready; no gradient goes back to the picture."""
    if isinstance(front, PatchFront | MapFront):
        return linear(tape, front.join, tape.new(B, places, front.join.in_features), width)
    planes, count = tape.new(B, 1, 1, 1), len(front.convolutions)
    for depth, layer in enumerate(front.convolutions):
        assert isinstance(layer, nn.Conv2d)
        if depth == 0:
            planes = tape.new(B, layer.in_channels, places * 4**count)
        shape = (B, layer.out_channels, places * 4 ** (count - depth - 1))
        seen = convolve(
            tape, layer, planes, *shape, reads=layer.in_channels, writes=layer.out_channels
        )
        planes = bend(tape, seen, keeps="output")
    channels = front.places.join.in_features
    laid = move(tape, [planes], B, places, channels, steps=0)
    return linear(tape, front.places.join, laid, width)
