"""Load a Hugging Face folder into Harken's modules, with equal outputs.

    config.json         -> GPTConfig or TextEncoderConfig (bert, gpt2 and llama only)
    model.safetensors   -> renamed, split and transposed weights (or the shards of an index)

Loading is strict. An unknown setting could change the outputs, so it is refused unless it is off.
Every weight of the model must be in the file in its shape, and every tensor of the file must be
used or be a known extra. No pickle and no code of a config is run. Sizes are compared with the file
before a model is built. Tokenizers, heads of BERT and dropout are not loaded.
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
    read_object,
    rotary_base,
    stored_tensors,
)

FLOATS = ("F64", "F32", "F16", "BF16")
ACTIVATIONS: dict[str, Any] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model with its weights, and its source."""

    model: GPT | TextEncoder
    model_type: str
    config: GPTConfig | TextEncoderConfig
    vocabulary: int
    used: tuple[str, ...]  # tensors of the file that are weights of the model
    unused: tuple[str, ...]  # known extras


@dataclass(frozen=True, slots=True)
class WeightSource:
    """A tensor of the file and its conversion to a weight."""

    name: str
    shape: tuple[int, ...]  # as stored
    transposed: bool  # stored as (in, out)
    third: int | None  # index among three weights that are fused along the last axis

    def convert(self, stored: Tensor) -> Tensor:
        part = stored if self.third is None else stored.chunk(3, dim=-1)[self.third]
        return part.t() if self.transposed else part


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A model type. `names` maps modules of Harken, in layer #, to those of the file."""

    read_config: Callable[[Settings], GPTConfig | TextEncoderConfig]
    names: Mapping[str, str]  # three modules with the same name are fused along the last axis
    prefix: str  # optional prefix of the names in the file
    extras: str  # regular expression of tensors that are not loaded
    conv1d: bool = False  # projections are stored as (in, out)

    def sources(
        self, config: GPTConfig | TextEncoderConfig, vocabulary: int
    ) -> Iterator[tuple[str, WeightSource]]:
        """Yield each weight's name and source, lazily, since the number of layers may be wrong."""
        with torch.device("meta"):
            template = replace(config, layers=1).build(vocabulary, seed=0).state_dict()
        if isinstance(config, GPTConfig) and config.tie_embeddings:
            del template["lm_head.weight"]
        for layer in range(config.layers):
            for name, weight in template.items():
                module, _, part = name.replace("blocks.0.", "blocks.#.").rpartition(".")
                if layer > 0 and "#" not in module:
                    continue
                theirs, shape = self.names[module.removeprefix("backbone.")], tuple(weight.shape)
                fused = [ours for ours, other in self.names.items() if other == theirs]
                third = fused.index(module) if len(fused) == 3 else None
                transposed = self.conv1d and "#" in module
                shape = shape[::-1] if transposed else shape
                shape = shape if third is None else (*shape[:-1], 3 * shape[-1])
                ours, source = (
                    f"{name}.{part}".replace("#", str(layer)) for name in (module, theirs)
                )
                yield ours, WeightSource(source, shape, transposed, third)


def read_folder(folder: Path, *, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load the model of a folder, converted to `dtype`."""
    settings = Settings(folder / CONFIG, read_object(folder / CONFIG, MAX_CONFIG_BYTES))
    model_type = settings.text("model_type", "")
    if model_type not in ARCHITECTURES:
        raise UserError(
            f"{settings.path}: unknown model_type "
            f"(expected one of {', '.join(ARCHITECTURES)}, got {model_type!r})",
            fix="Harken loads only these types; convert the model to one of them",
        )
    architecture, vocabulary = ARCHITECTURES[model_type], settings.size("vocab_size")
    stored: dict[str, StoredTensor] = {}
    sources: dict[str, WeightSource] = {}
    try:
        config = architecture.read_config(settings)
        settings.refuse_unknown()
        stored = _by_name(stored_tensors(folder), architecture.prefix)
        for name, source in architecture.sources(config, vocabulary):
            _check(source, stored, folder)
            sources[name] = source
    except (ValueError, RuntimeError) as error:  # heads that do not divide a width, or a huge width
        raise UserError(f"{settings.path}: sizes do not fit ({error})", fix=RESTORE) from None
    used = {source.name for source in sources.values()}
    unused = sorted(stored.keys() - used)
    for name in unused:
        if not re.fullmatch(architecture.extras, name):
            raise UserError(
                f"{stored[name].path}: Harken's {model_type} has no place for the tensor "
                f"{stored[name].name!r} (expected only weights of the model in {CONFIG})",
                fix=f"save the bare model without heads or adapters, or restore its {CONFIG}",
            )
    return LoadedModel(
        model=_build(config, vocabulary, sources, stored, dtype),
        model_type=model_type,
        config=config,
        vocabulary=vocabulary,
        used=tuple(sorted(stored[name].name for name in used)),
        unused=tuple(stored[name].name for name in unused),
    )


def _by_name(stored: list[StoredTensor], prefix: str) -> dict[str, StoredTensor]:
    """Return the tensors by name, without the prefix and with the current names of norms."""
    named: dict[str, StoredTensor] = {}
    for tensor in stored:
        name = tensor.name.removeprefix(prefix)
        # The first BERT checkpoints have these names.
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name in named:
            raise UserError(
                f"{tensor.path}: {named[name].name!r} and {tensor.name!r} are the same weight",
                fix="save the model again",
            )
        named[name] = tensor
    return named


def _check(source: WeightSource, stored: Mapping[str, StoredTensor], folder: Path) -> None:
    """Raise an error unless the source is stored in its shape, as floating-point numbers."""
    tensor = stored.get(source.name)
    if tensor is None:
        raise UserError(
            f"{folder}: there is no tensor {source.name!r} of shape {list(source.shape)}",
            fix=f"download the weights that belong to this {CONFIG}",
        )
    if tensor.shape != source.shape or tensor.dtype not in FLOATS:
        raise UserError(
            f"{tensor.path}: {tensor.name!r} has the wrong shape or type (expected "
            f"{list(source.shape)} in {', '.join(FLOATS)}, got {list(tensor.shape)} in "
            f"{tensor.dtype})",
            fix=f"use the weights that belong to this {CONFIG}, not quantized",
        )


def _build(
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
            f"{head.path}: {head.name!r} differs from the embeddings, but {CONFIG} sets "
            "tie_word_embeddings",
            fix="set tie_word_embeddings to false if the model was trained so",
        )
    model.load_state_dict(weights | {"lm_head.weight": embedding}, assign=True)
    model.lm_head.weight = model.embedding.weight
    return model


def _bert(settings: Settings) -> TextEncoderConfig:
    settings.only("position_embedding_type", "absolute")
    settings.only("is_decoder", False)
    settings.only("add_cross_attention", False)
    settings.flag("tie_word_embeddings", True)  # of a head that is not loaded
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


def _gpt2(settings: Settings) -> GPTConfig:
    settings.only("scale_attn_weights", True)
    settings.only("scale_attn_by_inverse_layer_idx", False)
    settings.only("add_cross_attention", False)
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


def _llama(settings: Settings) -> GPTConfig:
    settings.choice("hidden_act", {"silu": 0, "swish": 0}, "silu")
    width, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    head_width = settings.size("head_dim", max(1, width // heads))
    return GPTConfig(
        layers=settings.size("num_hidden_layers"),
        width=width,
        max_length=settings.size("max_position_embeddings"),
        attention=MultiHeadConfig(
            heads=heads,
            kv_heads=settings.size("num_key_value_heads", heads),
            head_width=head_width,
            key_width=head_width,
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
        read_config=_bert,
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
        extras=r"pooler\..*|cls\..*|embeddings\.position_ids",
    ),
    "gpt2": Architecture(
        read_config=_gpt2,
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
        extras=r"h\.\d+\.attn\.(masked_)?bias|lm_head\.weight",
        conv1d=True,
    ),
    "llama": Architecture(
        read_config=_llama,
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
        extras=r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq|lm_head\.weight",
    ),
}
