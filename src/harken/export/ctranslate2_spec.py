"""The specification of a Transformer for CTranslate2.

Linear layers of attention are fused: queries, keys and values of self-attention, and keys and
values of cross-attention. Positions that are added to the embeddings become a table. Rotated
features come first, and features n and n + rotated / 2 are a pair.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harken.attention.multihead import MultiHead, MultiHeadConfig
from harken.attention.relative import Position
from harken.export.requirements import Requirements
from harken.layers.feedforward import FeedForward
from harken.layers.transformer import Stack, TransformerBlock
from harken.models.gpt import GPT, GPTConfig
from harken.models.huggingface_types import pair_halves
from harken.models.seq2seq import EncoderDecoder, EncoderDecoderConfig

# Harken's activation -> name in `ctranslate2.specs.Activation`
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
}
TABLES = ("none", "learned", "sinusoid", "fourier")  # positions that become a table


def check_gpt(config: GPTConfig) -> None:
    """Raise `UserError` if CTranslate2 has no equal decoder."""
    needs = Requirements("ctranslate2")
    needs.require("model.mask", config.mask, "causal")
    needs.require("model.window", config.window, None)
    _check_stack(needs, "model", config, config.width)


def check_encoder_decoder(config: EncoderDecoderConfig) -> None:
    """Raise `UserError` if CTranslate2 has no equal encoder-decoder."""
    needs = Requirements("ctranslate2")
    for key, part in (("model.encoder", config.encoder), ("model.decoder", config.decoder)):
        needs.require(f"{key}.kind", part.kind, "transformer")
        _check_stack(needs, key, part, config.decoder.width)
        needs.require(f"{key}.norm.place", part.norm.place, "pre", "post")  # type: ignore[union-attr]
    encoder: Any = config.encoder
    decoder: Any = config.decoder
    needs.require("model.encoder.norm.eps", encoder.norm.eps, decoder.norm.eps)


def _check_stack(needs: Requirements, key: str, config: Any, width: int) -> None:
    position = config.position
    needs.require(f"{key}.position.kind", position.kind, *TABLES, "rotary")
    if position.kind in TABLES:
        needs.require(f"{key}.position.combine", getattr(position, "combine", "add"), "add")
    else:
        _, key_width = config.attention.head_widths(width)
        needs.rotary(f"{key}.position", position.fraction, key_width, partial=True)
    needs.attention(f"{key}.attention", config.attention, width, is_llama=True)
    if config.norm.place == "parallel":
        needs.require(f"{key}.norm.kind", config.norm.kind, "layer", where="parallel blocks")


def gpt_spec(model: GPT, config: GPTConfig) -> Any:
    """Return the specification of a language model with its weights."""
    from ctranslate2.specs import TransformerDecoderModelSpec, transformer_spec

    decoder = transformer_spec.TransformerDecoderSpec(
        config.layers,
        config.attention.heads,
        with_encoder_attention=False,
        parallel_residual=config.norm.place == "parallel",
        **_options(config, config.width),
    )
    fill_decoder(decoder, model, config)
    spec = TransformerDecoderModelSpec(decoder)
    spec.config.layer_norm_epsilon = config.norm.eps
    return spec


def encoder_decoder_spec(model: EncoderDecoder, config: EncoderDecoderConfig) -> Any:
    """Return the specification of an encoder-decoder with its weights."""
    from ctranslate2.specs import TransformerSpec, transformer_spec

    source: Any = config.encoder
    target: Any = config.decoder
    width = target.width
    encoder = transformer_spec.TransformerEncoderSpec(
        source.layers,
        source.attention.heads,
        layernorm_embedding=source.embedding_norm,
        **_options(source, width),
    )
    transformer: Any = model.encoder
    decoder_model: Any = model.decoder
    embedding = decoder_model.embedding if model.embedding is None else model.embedding
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = _array(embedding.weight)
    _set_positions(encoder, transformer.position, source.position.kind, source.max_length)
    if source.embedding_norm:
        _set_norm(encoder.layernorm_embedding, transformer.norm)
    _set_stack(encoder, transformer.stack, source)
    decoder = transformer_spec.TransformerDecoderSpec(
        target.layers, target.attention.heads, **_options(target, width)
    )
    fill_decoder(decoder, decoder_model, target)
    spec = TransformerSpec(encoder, decoder)
    spec.config.layer_norm_epsilon = target.norm.eps
    return spec


def _options(config: Any, width: int) -> dict[str, Any]:
    from ctranslate2.specs import common_spec

    attention: MultiHeadConfig = config.attention
    head_width, _ = attention.head_widths(width)
    options = {
        "pre_norm": config.norm.place != "post",
        "activation": common_spec.Activation[ACTIVATIONS[config.feedforward.activation]],
        "ffn_glu": config.feedforward.activation == "swiglu",
        "rms_norm": config.norm.kind == "rms",
        "num_heads_kv": attention.kv_heads or attention.heads,
        "head_dim": head_width,
    }
    if config.position.kind == "rotary":
        options |= {
            "rotary_dim": 2 * (int(config.position.fraction * head_width) // 2),
            "rotary_interleave": False,
            "rotary_base": config.position.base,
        }
    return options


def fill_decoder(spec: Any, model: Any, config: Any) -> None:
    """Set the weights of a decoder."""
    spec.scale_embeddings = False
    spec.embeddings.weight = _array(model.embedding.weight)
    spec.projection.weight = _array(model.lm_head.weight)
    _set_positions(spec, model.position, config.position.kind, config.max_length)
    _set_stack(spec, model.stack, config)


def _set_positions(spec: Any, position: Position, kind: str, max_length: int) -> None:
    if kind == "rotary":
        return
    # Without a table, CTranslate2 would add sinusoids.
    zeros = torch.zeros(1, max_length, position.width)
    table = position.embed(zeros, torch.arange(max_length)[None, :, None])
    spec.position_encodings.encodings = _array(table[0])


def _set_stack(spec: Any, stack: Stack, config: Any) -> None:
    if config.norm.place != "post":
        _set_norm(spec.layer_norm, stack.norm)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _set_block(layer, block, config)


def _set_block(spec: Any, block: Any, config: Any) -> None:
    assert isinstance(block, TransformerBlock)
    if config.norm.place == "parallel":
        _set_norm(spec.input_layer_norm, block.attention_norm)
        _set_norm(spec.post_attention_layer_norm, block.feedforward_norm)
    else:
        _set_norm(spec.self_attention.layer_norm, block.attention_norm)
        _set_norm(spec.ffn.layer_norm, block.feedforward_norm)
    queries, keys, values = _projections(block.attention, config.position)
    _set_linear(spec.self_attention.linear[0], queries, keys, values)
    _set_linear(spec.self_attention.linear[1], _weights(block.attention.out_proj))
    if block.cross is not None:
        queries, keys, values = _projections(block.cross, None)
        _set_norm(spec.attention.layer_norm, block.cross_norm)
        _set_linear(spec.attention.linear[0], queries)
        _set_linear(spec.attention.linear[1], keys, values)
        _set_linear(spec.attention.linear[2], _weights(block.cross.out_proj))
    feedforward: FeedForward = block.feedforward
    _set_linear(spec.ffn.linear_0, _weights(feedforward.up_proj))
    if feedforward.gate_proj is not None:
        _set_linear(spec.ffn.linear_0_noact, _weights(feedforward.gate_proj))
    _set_linear(spec.ffn.linear_1, _weights(feedforward.down_proj))


Weights = tuple[Tensor, Tensor | None]  # of a linear layer, and its bias


def _projections(layer: MultiHead, position: Any) -> tuple[Weights, Weights, Weights]:
    """Return the projections to queries, keys and values; rotated features come first."""
    score: Any = layer.score
    queries, keys = _weights(score.q_proj), _weights(score.k_proj)
    fraction = getattr(position, "fraction", 1.0)
    if fraction < 1.0:
        queries = _rotated_first(queries, layer.heads, fraction)
        keys = _rotated_first(keys, layer.kv_heads, fraction)
    return queries, keys, _weights(layer.v_proj)


def _rotated_first(weights: Weights, heads: int, fraction: float) -> Weights:
    width = len(weights[0]) // heads
    order = pair_halves(torch.arange(width)[None], 2 * (int(fraction * width) // 2))[0].argsort()

    def reordered(tensor: Tensor) -> Tensor:
        return tensor.view(heads, width, *tensor.shape[1:])[:, order].flatten(0, 1)

    weight, bias = weights
    return reordered(weight), None if bias is None else reordered(bias)


def _weights(layer: Any) -> Weights:
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()


def _set_linear(spec: Any, *layers: Weights) -> None:
    """Set a linear layer to several ones with the same input."""
    spec.weight = _array(torch.cat([weight for weight, _ in layers]))
    biases = [bias for _, bias in layers if bias is not None]
    if biases:
        spec.bias = _array(torch.cat(biases))


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    # A copy, because CTranslate2 quantizes in place.
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy()).copy()
