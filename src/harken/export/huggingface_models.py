"""The Hugging Face class that is equal to a model: its settings, and the config of its weights.

`models/huggingface_types.py` has the names and layouts of the weights. A class may have more biases
than the model; they are written as zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harken.export.requirements import Requirements
from harken.layers.feedforward import FeedForwardConfig
from harken.models.encoders import TextEncoderConfig, TransformerEncoderConfig
from harken.models.gpt import GPTConfig
from harken.models.huggingface_types import ACTIVATIONS

# Harken's activation -> its name in config.json
ACTIVATION_NAMES = {value: key for key, value in reversed(ACTIVATIONS.items())}


@dataclass(frozen=True, kw_only=True, slots=True)
class HuggingFaceClass:
    """A class of `transformers`, with the settings of its config.json."""

    model_type: str
    class_name: str
    # of the weights in the file; None for a class that Harken does not read
    config: GPTConfig | TextEncoderConfig | None
    settings: Mapping[str, Any]


def gpt_model(config: GPTConfig, vocabulary: int) -> HuggingFaceClass:
    """Return the class of a language model: GPT-2, GPT-NeoX or Llama."""
    needs = Requirements("hf")
    needs.require("model.mask", config.mask, "causal")
    needs.require("model.window", config.window, None)
    feedforward = config.feedforward
    position: Any = config.position
    if position.kind == "learned":
        where = "GPT-2, the class with learned positions"
        needs.require("model.position.combine", position.combine, "add")
        needs.require("model.norm.kind", config.norm.kind, "layer", where=where)
        needs.require("model.norm.place", config.norm.place, "pre", where=where)
        return _gpt2(needs, config, vocabulary, where)
    needs.require("model.position.kind", position.kind, "learned", "rotary")
    if config.norm.kind == "rms":
        where = "Llama, the class with rotary positions and RMSNorm"
        needs.require("model.norm.place", config.norm.place, "pre", where=where)
        needs.require("model.feedforward.activation", feedforward.activation, "swiglu", where=where)
        return _llama(needs, config, vocabulary)
    where = "GPT-NeoX, the class with rotary positions and LayerNorm"
    needs.require("model.norm.place", config.norm.place, "pre", "parallel", where=where)
    return _gpt_neox(needs, config, vocabulary, where)


def inner_width(config: FeedForwardConfig, width: int) -> int:
    """Return the inner width of the feed-forward layers."""
    return config.inner or round(config.expansion * width)


def _gpt2(needs: Requirements, config: GPTConfig, vocabulary: int, where: str) -> HuggingFaceClass:
    feedforward = config.feedforward
    needs.attention("model.attention", config.attention, config.width)
    needs.require(
        "model.feedforward.activation", feedforward.activation, *ACTIVATION_NAMES, where=where
    )
    inner = inner_width(feedforward, config.width)
    return HuggingFaceClass(
        model_type="gpt2",
        class_name="GPT2LMHeadModel",
        config=_filled(config, inner),
        settings={
            "vocab_size": vocabulary,
            "n_layer": config.layers,
            "n_embd": config.width,
            "n_head": config.attention.heads,
            "n_positions": config.max_length,
            "n_inner": inner,
            "activation_function": ACTIVATION_NAMES[feedforward.activation],
            "layer_norm_epsilon": config.norm.eps,
            "tie_word_embeddings": config.tie_embeddings,
        },
    )


def _gpt_neox(
    needs: Requirements, config: GPTConfig, vocabulary: int, where: str
) -> HuggingFaceClass:
    feedforward = config.feedforward
    position: Any = config.position
    needs.attention("model.attention", config.attention, config.width)
    needs.require(
        "model.feedforward.activation", feedforward.activation, *ACTIVATION_NAMES, where=where
    )
    _, key_width = config.attention.head_widths(config.width)
    needs.rotary("model.position", position.fraction, key_width, partial=True)
    inner = inner_width(feedforward, config.width)
    return HuggingFaceClass(
        model_type="gpt_neox",
        class_name="GPTNeoXForCausalLM",
        config=_filled(config, inner),
        settings={
            **_sizes(config, vocabulary, inner),
            "hidden_act": ACTIVATION_NAMES[feedforward.activation],
            "layer_norm_eps": config.norm.eps,
            "rotary_pct": position.fraction,
            "rotary_emb_base": position.base,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": position.base,
                "partial_rotary_factor": position.fraction,
            },
            "attention_bias": True,
            "use_parallel_residual": config.norm.place == "parallel",
        },
    )


def _llama(needs: Requirements, config: GPTConfig, vocabulary: int) -> HuggingFaceClass:
    attention = config.attention
    position: Any = config.position
    needs.attention("model.attention", attention, config.width, is_llama=True)
    head_width, key_width = attention.head_widths(config.width)
    needs.rotary("model.position", position.fraction, key_width, partial=False)
    inner = inner_width(config.feedforward, config.width)
    return HuggingFaceClass(
        model_type="llama",
        class_name="LlamaForCausalLM",
        config=config,
        settings={
            **_sizes(config, vocabulary, inner),
            "num_key_value_heads": attention.kv_heads or attention.heads,
            "head_dim": head_width,
            "attention_bias": attention.bias,
            "mlp_bias": config.feedforward.bias,
            "hidden_act": "silu",
            "rms_norm_eps": config.norm.eps,
            "rope_theta": position.base,
            "rope_parameters": {"rope_type": "default", "rope_theta": position.base},
        },
    )


def _sizes(config: GPTConfig, vocabulary: int, inner: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": config.width,
        "intermediate_size": inner,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.attention.heads,
        "max_position_embeddings": config.max_length,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _filled(config: Any, inner: int) -> Any:
    """Return the config with all biases."""
    feedforward = replace(config.feedforward, bias=True, inner=inner)
    return replace(config, attention=replace(config.attention, bias=True), feedforward=feedforward)


def bert_model(
    encoder: TransformerEncoderConfig,
    key: str,
    width: int,
    vocabulary: int,
    segments: int,
    class_name: str,
) -> HuggingFaceClass:
    """Return a BERT class; `key` is the key of the encoder in the recipe."""
    needs = Requirements("hf")
    needs.require(f"{key}.kind", encoder.kind, "transformer")
    position: Any = encoder.position
    needs.require(f"{key}.position.kind", position.kind, "learned", where="BERT")
    needs.require(f"{key}.position.combine", position.combine, "add", where="BERT")
    needs.require(f"{key}.norm.kind", encoder.norm.kind, "layer", where="BERT")
    needs.require(f"{key}.norm.place", encoder.norm.place, "post", where="BERT")
    needs.require(f"{key}.embedding_norm", encoder.embedding_norm, True, where="BERT")
    needs.attention(f"{key}.attention", encoder.attention, width)
    activation = encoder.feedforward.activation
    needs.require(f"{key}.feedforward.activation", activation, *ACTIVATION_NAMES, where="BERT")
    inner = inner_width(encoder.feedforward, width)
    config = TextEncoderConfig(
        layers=encoder.layers,
        width=width,
        max_length=encoder.max_length,
        attention=replace(encoder.attention, bias=True),
        position=encoder.position,
        feedforward=replace(encoder.feedforward, bias=True, inner=inner),
        norm=encoder.norm,
        segments=segments,
        embedding_norm=True,
    )
    return HuggingFaceClass(
        model_type="bert",
        class_name=class_name,
        config=config,
        settings={
            "vocab_size": vocabulary,
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": encoder.layers,
            "num_attention_heads": encoder.attention.heads,
            "max_position_embeddings": encoder.max_length,
            "type_vocab_size": segments,
            "hidden_act": ACTIVATION_NAMES[activation],
            "layer_norm_eps": encoder.norm.eps,
        },
    )
