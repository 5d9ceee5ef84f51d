"""Encoder-decoders as Marian (post-norm) or Pegasus (pre-norm), with sinusoidal positions.

Harken interleaves sines and cosines, and these classes concatenate them. So the features of the
residual stream are reordered; norms and products do not depend on their order.
"""

import re
from typing import Any

import torch
from torch import Tensor

from harken.attention.sinusoids import angles
from harken.export.huggingface_models import ACTIVATION_NAMES, HuggingFaceClass, inner_width
from harken.export.requirements import Requirements
from harken.models.seq2seq import EncoderDecoder, EncoderDecoderConfig

LAYER = re.compile(r"(encoder|decoder)\.stack\.(?:blocks\.(\d+)\.)?(.+)\.(weight|bias)")
NAMES = {
    "attention.score.q_proj": "self_attn.q_proj",
    "attention.score.k_proj": "self_attn.k_proj",
    "attention.v_proj": "self_attn.v_proj",
    "attention.out_proj": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "cross.score.q_proj": "encoder_attn.q_proj",
    "cross.score.k_proj": "encoder_attn.k_proj",
    "cross.v_proj": "encoder_attn.v_proj",
    "cross.out_proj": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
    "feedforward.up_proj": "fc1",
    "feedforward.down_proj": "fc2",
    "feedforward_norm": "final_layer_norm",
    "norm": "layer_norm",
}
OUTPUTS = ("out_proj", "fc2")  # projections to the residual stream
INPUTS = ("q_proj", "k_proj", "v_proj", "fc1")


def seq2seq_model(config: EncoderDecoderConfig, vocabulary: int) -> HuggingFaceClass:
    """Return the class of a translator."""
    needs = Requirements("hf")
    encoder: Any = config.encoder
    decoder: Any = config.decoder
    needs.require("model.encoder.kind", encoder.kind, "transformer")
    needs.require("model.decoder.kind", decoder.kind, "transformer")
    needs.require("model.share_embeddings", config.share_embeddings, True)
    needs.require("model.decoder.tie_embeddings", decoder.tie_embeddings, True)
    needs.require("model.encoder.embedding_norm", encoder.embedding_norm, False)
    for key, part in (("model.encoder", encoder), ("model.decoder", decoder)):
        needs.require(f"{key}.position.kind", part.position.kind, "sinusoid")
        needs.require(f"{key}.position.base", part.position.base, 10000.0)
        needs.require(f"{key}.position.combine", part.position.combine, "add")
        needs.require(f"{key}.norm.kind", part.norm.kind, "layer")
        needs.require(f"{key}.norm.eps", part.norm.eps, 1e-5)
        needs.require(f"{key}.norm.place", part.norm.place, "pre", "post")
        needs.attention(f"{key}.attention", part.attention, decoder.width)
        activation = part.feedforward.activation
        needs.require(f"{key}.feedforward.activation", activation, *ACTIVATION_NAMES, "silu")
    needs.require("model.encoder.norm.place", encoder.norm.place, decoder.norm.place)
    activation = decoder.feedforward.activation
    needs.require(
        "model.encoder.feedforward.activation", encoder.feedforward.activation, activation
    )
    if decoder.width % 2:
        raise needs.refuse(f"model.decoder.width = {decoder.width}, an odd number")
    is_marian = decoder.norm.place == "post"
    sizes: dict[str, Any] = {}
    for name, part in (("encoder", encoder), ("decoder", decoder)):
        sizes[f"{name}_layers"] = part.layers
        sizes[f"{name}_attention_heads"] = part.attention.heads
        sizes[f"{name}_ffn_dim"] = inner_width(part.feedforward, decoder.width)
    return HuggingFaceClass(
        model_type="marian" if is_marian else "pegasus",
        class_name="MarianMTModel" if is_marian else "PegasusForConditionalGeneration",
        config=None,
        settings={
            **sizes,
            "vocab_size": vocabulary,
            "d_model": decoder.width,
            "max_position_embeddings": max(encoder.max_length, decoder.max_length),
            "activation_function": ACTIVATION_NAMES.get(activation, activation),
            "scale_embedding": False,
            "tie_word_embeddings": True,
            "forced_eos_token_id": None,
        },
    )


def seq2seq_weights(model: EncoderDecoder, config: EncoderDecoderConfig) -> dict[str, Tensor]:
    """Return the tensors of the file; biases that the model lacks are zeros."""
    width = config.decoder.width
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    state = model.state_dict()
    embedding = state["decoder.embedding.weight"][:, order]
    stored = {"model.shared.weight": embedding, "final_logits_bias": torch.zeros(1, len(embedding))}
    length = max(config.max_source, config.decoder.max_length)
    (phases,) = angles(torch.arange(length)[None], width, base=10000.0)
    for side in ("encoder", "decoder"):
        table = torch.cat((phases.sin(), phases.cos()), dim=-1)
        stored[f"model.{side}.embed_positions.weight"] = table
    for name, tensor in state.items():
        match = LAYER.fullmatch(name)
        if match is None:
            continue
        side, layer, module, parameter = match.groups()
        target = NAMES[module]
        place = f"model.{side}." + ("" if layer is None else f"layers.{layer}.")
        last = target.rpartition(".")[2]
        weight = tensor
        if last in INPUTS and parameter == "weight":
            weight = tensor[:, order]
        elif last not in INPUTS:  # norms, and outputs to the residual stream
            weight = tensor[order]
        stored[f"{place}{target}.{parameter}"] = weight
        if last in (*INPUTS, *OUTPUTS) and parameter == "weight":
            stored.setdefault(f"{place}{target}.bias", torch.zeros(len(weight)))
    return stored
