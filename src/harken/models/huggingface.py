"""Load a Hugging Face folder into Harken's modules, with equal outputs.

    config.json                      -> GPTConfig or TextEncoderConfig (bert, gpt2 and llama only)
    model.safetensors, or its shards -> renamed, split and transposed weights

Loading is strict. An unknown setting could change the outputs, so it is rejected unless it is null,
false or empty. Every weight of the model must be in the file with its shape, and all other tensors
of the file must be known to be irrelevant. Pickle files and code from a config are never run. Sizes
are checked before the model is built. Tokenizers, dropout rates, and the pooler and pretraining
heads of BERT are not loaded.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig
from harken.attention.relative import RotaryConfig
from harken.errors import UserError
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.models.encoders import TextEncoder, TextEncoderConfig
from harken.models.gpt import GPT, GPTConfig
from harken.models.huggingface_files import (
    CONFIG,
    MAX_CONFIG_BYTES,
    RESTORE,
    Settings,
    StoredTensor,
    read_json_object,
    rotary_base,
    stored_tensors,
)

FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")
ACTIVATIONS: dict[str, Any] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model with its weights, and what was loaded."""

    model: GPT | TextEncoder
    model_type: str
    config: GPTConfig | TextEncoderConfig
    vocabulary: int
    used: tuple[str, ...]  # tensors of the file that were loaded
    unused: tuple[str, ...]  # tensors of the file that were ignored


@dataclass(frozen=True, slots=True)
class WeightSource:
    """The tensor of the file that contains a weight, and how to convert it."""

    name: str
    shape: tuple[int, ...]  # as stored
    transposed: bool  # stored as (in, out)
    fused_index: int | None  # which third of the last axis, if three weights are fused along it

    def convert(self, stored: Tensor) -> Tensor:
        weight = stored if self.fused_index is None else stored.chunk(3, dim=-1)[self.fused_index]
        return weight.t() if self.transposed else weight


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A model type of Hugging Face. In `names`, # stands for the layer index."""

    read_config: Callable[[Settings], GPTConfig | TextEncoderConfig]
    # Harken's module -> module in the file; three with the same value are fused
    names: Mapping[str, str]
    prefix: str  # optional prefix of the names in the file
    ignored: str  # regular expression of tensors to ignore
    conv1d: bool = False  # whether projections are stored as (in, out), as in GPT-2

    def sources(
        self, config: GPTConfig | TextEncoderConfig, vocabulary: int
    ) -> Iterator[tuple[str, WeightSource]]:
        """Yield each weight's name and source; lazily, since `layers` may be wrong and huge."""
        with torch.device("meta"):
            template = replace(config, layers=1).build(vocabulary, seed=0).state_dict()
        if isinstance(config, GPTConfig) and config.tie_embeddings:
            del template["lm_head.weight"]
        for layer in range(config.layers):
            for name, weight in template.items():
                module, _, parameter = name.replace("blocks.0.", "blocks.#.").rpartition(".")
                if layer > 0 and "#" not in module:
                    continue
                file_module = self.names[module.removeprefix("backbone.")]
                fused = [key for key, value in self.names.items() if value == file_module]
                fused_index = fused.index(module) if len(fused) == 3 else None
                # In GPT-2, matrices of blocks are transposed, embeddings are not. Vectors do not
                # change when transposed.
                transposed = self.conv1d and "#" in module
                shape = tuple(weight.shape)[::-1] if transposed else tuple(weight.shape)
                shape = shape if fused_index is None else (*shape[:-1], 3 * shape[-1])
                weight_name, stored_name = (
                    f"{path}.{parameter}".replace("#", str(layer)) for path in (module, file_module)
                )
                yield weight_name, WeightSource(stored_name, shape, transposed, fused_index)


def read_folder(folder: Path, *, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load a model from a folder and convert its weights to `dtype`."""
    settings = Settings(folder / CONFIG, read_json_object(folder / CONFIG, MAX_CONFIG_BYTES))
    model_type = settings.text("model_type", "")
    if model_type not in ARCHITECTURES:
        raise UserError(
            f"{settings.path}: unknown model_type "
            f"(expected one of {', '.join(ARCHITECTURES)}, got {model_type!r})",
            fix="choose a model of one of these types",
        )
    architecture, vocabulary = ARCHITECTURES[model_type], settings.size("vocab_size")
    stored: dict[str, StoredTensor] = {}
    sources: dict[str, WeightSource] = {}
    try:
        config = architecture.read_config(settings)
        settings.reject_unknown()
        stored = _index_by_name(stored_tensors(folder), architecture.prefix)
        for name, source in architecture.sources(config, vocabulary):
            _check_stored(source, stored, folder)
            sources[name] = source
    except (ValueError, RuntimeError) as error:  # such as a width not divisible by the heads
        raise UserError(
            f"{settings.path}: a model of these sizes cannot be built ({error})", fix=RESTORE
        ) from None
    used = {source.name for source in sources.values()}
    unused = sorted(stored.keys() - used)
    for name in unused:
        if not re.fullmatch(architecture.ignored, name):
            raise UserError(
                f"{stored[name].path}: unexpected tensor {stored[name].name!r} (expected only "
                f"weights of the {model_type} model in {CONFIG})",
                fix=f"save the model without task heads and adapters, or restore its {CONFIG}",
            )
    return LoadedModel(
        model=_build_model(config, vocabulary, sources, stored, dtype),
        model_type=model_type,
        config=config,
        vocabulary=vocabulary,
        used=tuple(sorted(stored[name].name for name in used)),
        unused=tuple(stored[name].name for name in unused),
    )


def _index_by_name(stored: list[StoredTensor], prefix: str) -> dict[str, StoredTensor]:
    """Index the tensors by name: without the prefix, and old parameter names replaced."""
    named: dict[str, StoredTensor] = {}
    for tensor in stored:
        name = tensor.name.removeprefix(prefix)
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")  # the first BERT checkpoints
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name in named:
            raise UserError(
                f"{tensor.path}: {named[name].name!r} and {tensor.name!r} are two names of one "
                "parameter (expected one of them)",
                fix="load the model with transformers and save it with save_pretrained",
            )
        named[name] = tensor
    return named


def _check_stored(source: WeightSource, stored: Mapping[str, StoredTensor], folder: Path) -> None:
    """Raise an error unless the tensor is in the file, with its shape and a float dtype."""
    tensor = stored.get(source.name)
    if tensor is None:
        raise UserError(
            f"{folder}: no tensor {source.name!r} (expected shape {list(source.shape)})",
            fix=f"download the weights that belong to this {CONFIG}",
        )
    if tensor.shape != source.shape or tensor.dtype not in FLOAT_DTYPES:
        raise UserError(
            f"{tensor.path}: {tensor.name!r} has the wrong shape or type (expected "
            f"{list(source.shape)} in {', '.join(FLOAT_DTYPES)}, got {list(tensor.shape)} in "
            f"{tensor.dtype})",
            fix=f"use the weights that belong to this {CONFIG}, not quantized",
        )


def _build_model(
    config: GPTConfig | TextEncoderConfig,
    vocabulary: int,
    sources: Mapping[str, WeightSource],
    stored: Mapping[str, StoredTensor],
    dtype: torch.dtype,
) -> GPT | TextEncoder:
    """Build the model on the meta device, then assign the weights."""
    with torch.device("meta"):
        model = config.build(vocabulary, seed=0)
    weights = {
        name: source.convert(stored[source.name].read())
        .to(dtype)
        .clone(memory_format=torch.contiguous_format)
        for name, source in sources.items()
    }
    if not isinstance(model, GPT) or "lm_head.weight" in weights:
        model.load_state_dict(weights, assign=True)
        return model
    embedding, head = weights["embedding.weight"], stored.get("lm_head.weight")
    if head is not None and not torch.equal(head.read().to(dtype), embedding):
        raise UserError(
            f"{head.path}: {head.name!r} differs from the token embeddings, but {CONFIG} sets "
            "tie_word_embeddings",
            fix="set tie_word_embeddings to false if the model has separate embeddings",
        )
    model.load_state_dict(weights | {"lm_head.weight": embedding}, assign=True)
    model.lm_head.weight = model.embedding.weight
    return model


def _read_bert_config(settings: Settings) -> TextEncoderConfig:
    settings.require("position_embedding_type", "absolute")
    settings.require("is_decoder", False)
    settings.require("add_cross_attention", False)
    settings.flag("tie_word_embeddings", True)  # affects only heads, which are not loaded
    return TextEncoderConfig(
        layers=settings.size("num_hidden_layers"),
        width=settings.size("hidden_size"),
        max_length=settings.size("max_position_embeddings"),
        attention=MultiHeadConfig(heads=settings.size("num_attention_heads"), bias=True),
        position=LearnedConfig(),
        feedforward=FeedForwardConfig(
            activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),
            inner=settings.size("intermediate_size"),
        ),
        norm=NormConfig(place="post", eps=settings.number("layer_norm_eps", 1e-12)),
        segments=settings.size("type_vocab_size", 2),
        embedding_norm=True,
    )


def _read_gpt2_config(settings: Settings) -> GPTConfig:
    settings.require("scale_attn_weights", True)
    settings.require("scale_attn_by_inverse_layer_idx", False)
    settings.require("add_cross_attention", False)
    width = settings.size("n_embd")
    return GPTConfig(
        layers=settings.size("n_layer"),
        width=width,
        max_length=settings.size("n_positions"),
        attention=MultiHeadConfig(heads=settings.size("n_head"), bias=True),
        position=LearnedConfig(),
        feedforward=FeedForwardConfig(
            activation=settings.choice("activation_function", ACTIVATIONS, "gelu_new"),
            inner=settings.size("n_inner", 4 * width),
        ),
        norm=NormConfig(eps=settings.number("layer_norm_epsilon", 1e-5)),
        tie_embeddings=settings.flag("tie_word_embeddings", True),
    )


def _read_llama_config(settings: Settings) -> GPTConfig:
    settings.choice("hidden_act", {"silu": "silu", "swish": "silu"}, "silu")  # reject others
    width, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    head_dim = settings.size("head_dim", max(1, width // heads))
    return GPTConfig(
        layers=settings.size("num_hidden_layers"),
        width=width,
        max_length=settings.size("max_position_embeddings"),
        attention=MultiHeadConfig(
            heads=heads,
            kv_heads=settings.size("num_key_value_heads", heads),
            head_width=head_dim,
            key_width=head_dim,
            bias=settings.flag("attention_bias", False),
        ),
        position=RotaryConfig(base=rotary_base(settings)),
        feedforward=FeedForwardConfig(
            activation="swiglu",
            inner=settings.size("intermediate_size"),
            bias=settings.flag("mlp_bias", False),
        ),
        norm=NormConfig(kind="rms", eps=settings.number("rms_norm_eps", 1e-6)),
        tie_embeddings=settings.flag("tie_word_embeddings", False),
    )


ARCHITECTURES = {
    "bert": Architecture(
        read_config=_read_bert_config,
        names={
            "embedding": "embeddings.word_embeddings",
            "segment": "embeddings.token_type_embeddings",
            "position.tables.0": "embeddings.position_embeddings",
            "norm": "embeddings.LayerNorm",
            "stack.blocks.#.attention.score.q_proj": "encoder.layer.#.attention.self.query",
            "stack.blocks.#.attention.score.k_proj": "encoder.layer.#.attention.self.key",
            "stack.blocks.#.attention.v_proj": "encoder.layer.#.attention.self.value",
            "stack.blocks.#.attention.out_proj": "encoder.layer.#.attention.output.dense",
            "stack.blocks.#.attention_norm": "encoder.layer.#.attention.output.LayerNorm",
            "stack.blocks.#.feedforward.up_proj": "encoder.layer.#.intermediate.dense",
            "stack.blocks.#.feedforward.down_proj": "encoder.layer.#.output.dense",
            "stack.blocks.#.feedforward_norm": "encoder.layer.#.output.LayerNorm",
        },
        prefix="bert.",
        ignored=r"pooler\..*|cls\..*|embeddings\.position_ids",
    ),
    "gpt2": Architecture(
        read_config=_read_gpt2_config,
        names={
            "embedding": "wte",
            "position.tables.0": "wpe",
            "stack.blocks.#.attention_norm": "h.#.ln_1",
            "stack.blocks.#.attention.score.q_proj": "h.#.attn.c_attn",
            "stack.blocks.#.attention.score.k_proj": "h.#.attn.c_attn",
            "stack.blocks.#.attention.v_proj": "h.#.attn.c_attn",
            "stack.blocks.#.attention.out_proj": "h.#.attn.c_proj",
            "stack.blocks.#.feedforward_norm": "h.#.ln_2",
            "stack.blocks.#.feedforward.up_proj": "h.#.mlp.c_fc",
            "stack.blocks.#.feedforward.down_proj": "h.#.mlp.c_proj",
            "stack.norm": "ln_f",
            "lm_head": "lm_head",
        },
        prefix="transformer.",
        ignored=r"h\.\d+\.attn\.(masked_)?bias|lm_head\.weight",
        conv1d=True,
    ),
    "llama": Architecture(
        read_config=_read_llama_config,
        names={
            "embedding": "embed_tokens",
            "stack.blocks.#.attention_norm": "layers.#.input_layernorm",
            "stack.blocks.#.attention.score.q_proj": "layers.#.self_attn.q_proj",
            "stack.blocks.#.attention.score.k_proj": "layers.#.self_attn.k_proj",
            "stack.blocks.#.attention.v_proj": "layers.#.self_attn.v_proj",
            "stack.blocks.#.attention.out_proj": "layers.#.self_attn.o_proj",
            "stack.blocks.#.feedforward_norm": "layers.#.post_attention_layernorm",
            # Harken computes silu(up_proj) * gate_proj, Llama silu(gate_proj) * up_proj.
            "stack.blocks.#.feedforward.up_proj": "layers.#.mlp.gate_proj",
            "stack.blocks.#.feedforward.gate_proj": "layers.#.mlp.up_proj",
            "stack.blocks.#.feedforward.down_proj": "layers.#.mlp.down_proj",
            "stack.norm": "norm",
            "lm_head": "lm_head",
        },
        prefix="model.",
        ignored=r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq|lm_head\.weight",
    ),
}
