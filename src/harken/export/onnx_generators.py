"""Graphs of models that generate tokens: language models and encoder-decoders."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from harken.attention.cache import KeyValues
from harken.attention.masks import build_mask
from harken.export.onnx_graphs import (
    NEXT,
    Graph,
    TensorSpec,
    cache_specs,
    flatten_cache,
    mask_spec,
    token_spec,
    unflatten_cache,
)
from harken.layers.convolution import Convolutions
from harken.layers.recurrent import Recurrent, RecurrentState
from harken.models.captioner import Captioner
from harken.models.causal import CausalState, first_positions
from harken.models.decoders import (
    AttentionRNNDecoder,
    AttentionRNNState,
    LocationState,
    TransformerDecoder,
)
from harken.models.gpt import GPT
from harken.models.recognizer import SpeechRecognizer
from harken.models.recurrent_lm import FixedStateLM
from harken.models.seq2seq import EncoderDecoder, Seq2Seq

MEMORY = ("batch", "memory")


def layers_of(blocks: nn.ModuleList, name: str) -> list[nn.Module]:
    """Return the attention with this name in each block."""
    return [block.get_submodule(name) for block in blocks]


def with_next(inputs: list[TensorSpec], state: list[TensorSpec], module: nn.Module) -> Graph:
    """Return a decoder with these inputs and this state."""
    outputs = ["logits", *(NEXT + spec.name for spec in state)]
    return Graph(name="decoder", module=module, inputs=[*inputs, *state], outputs=outputs)


# --- language models


class GPTGraph(nn.Module):
    """The position of a token is the number of tokens before it, without padding."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model, self.layers = model, len(model.stack.blocks)

    def forward(
        self, tokens: Tensor, present: Tensor, past_present: Tensor, *past: Tensor
    ) -> tuple[Tensor, ...]:
        model = self.model
        past_count = past_present.long().sum(dim=1, keepdim=True)
        positions = (past_count + present.long().cumsum(dim=1) - 1).clamp(min=0)
        present = torch.cat((past_present, present), dim=1)
        key_positions = (present.long().cumsum(dim=1) - 1).clamp(min=0)
        mask = build_mask(
            model.mask_kind, positions, key_positions, window=model.window, present=present
        )
        state = CausalState(unflatten_cache(past, self.layers), *first_positions(tokens.device))
        states, layers = model.run(tokens, positions, key_positions, mask, state)
        return model.logits(states), present, *flatten_cache(layers)


def gpt_graph(model: GPT) -> Graph:
    """Return the graph of a language model with attention."""
    caches = cache_specs(layers_of(model.stack.blocks, "attention"), model.position.width, "past")
    inputs = [token_spec(model.embedding.num_embeddings), mask_spec("present")]
    state = [mask_spec("past_present", ("batch", "past")), *caches]
    return with_next(inputs, state, GPTGraph(model))


class RecurrentLMGraph(nn.Module):
    """The state is that of the recurrent layers."""

    def __init__(self, model: FixedStateLM) -> None:
        super().__init__()
        self.model, self.backbone = model, model.backbone

    def forward(
        self, tokens: Tensor, present: Tensor, hidden: Tensor, cell: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        embedded, state = self.model.embedding(tokens), RecurrentState(hidden, cell)
        states, state = self.backbone(embedded, present, state)
        return self.model.logits(states), *(part for part in state if part is not None)


class ConvLMGraph(nn.Module):
    """The state is the last inputs of each convolution."""

    def __init__(self, model: FixedStateLM, backbone: Convolutions) -> None:
        super().__init__()
        self.model, self.backbone = model, backbone

    def forward(self, tokens: Tensor, present: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        embedded = self.model.embedding(tokens)
        states, last = self.backbone.step(embedded, present, state)
        return self.model.logits(states), *last


def fixed_state_graph(model: FixedStateLM) -> Graph:
    """Return the graph of a language model whose state has a constant size."""
    inputs = [token_spec(model.embedding.num_embeddings), mask_spec("present")]
    if isinstance(model.backbone, Recurrent):
        state = recurrent_specs(model.backbone)
        return with_next(inputs, state, RecurrentLMGraph(model))
    width = model.backbone.width
    state = [
        TensorSpec(name=f"inputs_{index}", axes=("batch", context, width))
        for index, context in enumerate(model.backbone.contexts)
    ]
    return with_next(inputs, state, ConvLMGraph(model, model.backbone))


def recurrent_specs(layers: Recurrent) -> list[TensorSpec]:
    """Return the specs of `RecurrentState`."""
    names = ("hidden", "cell") if layers.kind == "lstm" else ("hidden",)
    axes = ("batch", layers.layers, layers.hidden)
    return [TensorSpec(name=name, axes=axes) for name in names]


# --- encoder-decoders


class EncoderGraph(nn.Module):
    """inputs -> mask of the memory, CTC logits, memory and first state of the decoder."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        model = self.model
        if isinstance(model, EncoderDecoder):
            return inputs[1].clone(), *flatten_state(model.init_state(*inputs))
        assert isinstance(model, SpeechRecognizer | Captioner)
        memory, present = model.encode(*inputs)
        outputs = [present]
        if isinstance(model, SpeechRecognizer) and model.ctc is not None:
            outputs.append(model.ctc.logits(memory))
        if model.decoder is not None:
            outputs += flatten_state(model.init_state(memory, present))
        return tuple(outputs)


def flatten_state(state: CausalState | AttentionRNNState) -> list[Tensor]:
    """Return the memory and the first state of a decoder."""
    if isinstance(state, CausalState):
        return flatten_cache(state.memory)
    location = [] if state.location is None else [state.location.memory, state.location.weights]
    memory = flatten_cache((state.memory,))
    return [*memory, *location, *(part for part in state.cell if part is not None)]


class TransformerDecoderGraph(nn.Module):
    """The memory and the state are the keys and values of all layers."""

    def __init__(self, decoder: TransformerDecoder, memory_tensors: int) -> None:
        super().__init__()
        self.decoder, self.memory_tensors = decoder, memory_tensors

    def forward(
        self, tokens: Tensor, memory_present: Tensor, *caches: Tensor
    ) -> tuple[Tensor, ...]:
        decoder, layers = self.decoder, len(self.decoder.stack.blocks)
        memory = unflatten_cache(caches[: self.memory_tensors], layers)
        past = unflatten_cache(caches[self.memory_tensors :], layers)
        past_count, count = past[0].values.shape[2], tokens.shape[1]
        key_positions = torch.arange(past_count + count)[None]
        positions = torch.arange(count)[None] + past_count
        state = CausalState(
            past,
            *first_positions(tokens.device),
            memory=memory,
            memory_present=memory_present,
        )
        mask = build_mask(decoder.mask_kind, positions, key_positions, window=decoder.window)
        states, layers_after = decoder.run(tokens, positions, key_positions, mask, state)
        return decoder.logits(states), *flatten_cache(layers_after)


class RNNDecoderGraph(nn.Module):
    """One token; the state is that of the recurrent layers and of location-sensitive attention."""

    def __init__(self, decoder: AttentionRNNDecoder, has_keys: bool) -> None:
        super().__init__()
        self.decoder, self.has_keys = decoder, has_keys

    def forward(
        self, tokens: Tensor, memory_present: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        remaining = list(tensors)
        keys = remaining.pop(0) if self.has_keys else None
        memory, location = KeyValues(keys, remaining.pop(0)), None
        if self.decoder.location is not None:
            location_memory, weights = remaining.pop(0), remaining.pop(0)
            location = LocationState(weights, location_memory)
        hidden, *cell = remaining
        recurrent = RecurrentState(hidden, cell[0] if cell else None)
        state = AttentionRNNState(recurrent, memory, memory_present, location)
        states, after = self.decoder.step(tokens, None, state)
        outputs = [self.decoder.logits(states)]
        if after.location is not None:
            outputs.append(after.location.weights)
        return *outputs, *(part for part in after.cell if part is not None)


def decoder_graph(decoder: TransformerDecoder | AttentionRNNDecoder, memory_width: int) -> Graph:
    """Return the graph of a decoder over a memory of this width."""
    vocabulary, present = decoder.embedding.num_embeddings, mask_spec("memory_present", MEMORY)
    if isinstance(decoder, TransformerDecoder):
        blocks = decoder.stack.blocks
        memory = cache_specs(layers_of(blocks, "cross"), memory_width, "memory")
        width = decoder.position.width
        past = cache_specs(layers_of(blocks, "attention"), width, "past")
        module = TransformerDecoderGraph(decoder, len(memory))
        return with_next([token_spec(vocabulary), present, *memory], past, module)
    memory = cache_specs([decoder.attention], memory_width, "memory")
    state = recurrent_specs(decoder.cell)
    rnn = RNNDecoderGraph(decoder, has_keys=len(memory) == 2)
    if decoder.location is not None:
        hidden = decoder.location.memory_proj.out_features
        memory.append(TensorSpec(name="location_memory", axes=(*MEMORY, hidden)))
        state.insert(0, TensorSpec(name="location_weights", axes=MEMORY))
    token = token_spec(vocabulary, axes=("batch", 1))
    return with_next([token, present, *memory], state, rnn)


def encoder_outputs(model: Seq2Seq, decoder: Graph | None) -> list[str]:
    """Return the names of the outputs of `EncoderGraph`."""
    names = ["memory_present"]
    if isinstance(model, SpeechRecognizer) and model.ctc is not None:
        names.append("ctc_logits")
    if decoder is not None:
        names += [
            spec.name
            for spec in decoder.inputs
            if spec.name not in ("tokens", "memory_present") and "past" not in spec.axes
        ]
    return names


def seq2seq_graphs(model: Seq2Seq, inputs: Sequence[TensorSpec]) -> list[Graph]:
    """Return the encoder and, unless the model has only CTC, the decoder."""
    decoder = None
    if model.decoder is not None:
        assert isinstance(model, EncoderDecoder | Captioner | SpeechRecognizer)
        decoder = decoder_graph(model.decoder, model.encoder.width)
    encoder = Graph(
        name="model" if decoder is None else "encoder",
        module=EncoderGraph(model),
        inputs=inputs,
        outputs=encoder_outputs(model, decoder),
    )
    return [encoder] if decoder is None else [encoder, decoder]
