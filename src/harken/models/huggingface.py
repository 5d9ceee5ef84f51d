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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

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
    RESTORE,
    Settings,
    Stored,
    rotary_base,
    stored_in,
)

FLOATS = ("F64", "F32", "F16", "BF16")
ACTIVATIONS: dict[str, Any] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
TIED = r"|lm_head\.weight"


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
    transposed: bool = False  # stored as (in, out)
    third: int | None = None  # index among three weights that are fused along the last axis

    def convert(self, stored: Tensor) -> Tensor:
        part = stored if self.third is None else stored.chunk(3, dim=-1)[self.third]
        return part.T if self.transposed else part


Renaming = Iterator[tuple[str, WeightSource]]
"""(Harken's name, its source), generated layer by layer."""


@dataclass(frozen=True, slots=True)
class WeightMap:
    """The model that a config.json describes, and the names of its weights."""

    config: GPTConfig | TextEncoderConfig
    vocabulary: int
    prefix: str  # optional prefix of the names in the file
    renaming: Renaming
    extras: re.Pattern[str]  # tensors that may be left over


def read_folder(folder: Path, *, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load the model of a folder, converted to `dtype`."""
    settings = Settings.of(folder / CONFIG)
    model_type = settings.text("model_type", "")
    if model_type not in WEIGHT_MAPS:
        raise UserError(
            f"{settings.path}: unknown model_type "
            f"(expected one of {', '.join(WEIGHT_MAPS)}, got {model_type!r})",
            fix="Harken loads only these types; convert the model to one of them",
        )
    try:
        weight_map = WEIGHT_MAPS[model_type](settings)
    except ValueError as error:  # of a config class, such as heads that do not divide a width
        raise UserError(f"{settings.path}: sizes do not fit ({error})", fix=RESTORE) from None
    settings.refuse_unknown()

    stored = _canonical(stored_in(folder), weight_map.prefix)
    sources: dict[str, WeightSource] = {}
    for name, source in weight_map.renaming:
        _check(source, stored, folder)
        sources[name] = source
    used = {source.name for source in sources.values()}
    unused = sorted(stored.keys() - used)
    for name in unused:
        if not weight_map.extras.fullmatch(name):
            raise UserError(
                f"{stored[name].path}: Harken's {model_type} has no place for the tensor "
                f"{stored[name].name!r} (expected only weights of the model in {CONFIG})",
                fix=f"save the bare model without heads or adapters, or restore its {CONFIG}",
            )
    return LoadedModel(
        model=_fill(weight_map, sources, stored, dtype),
        model_type=model_type,
        config=weight_map.config,
        vocabulary=weight_map.vocabulary,
        used=tuple(sorted(stored[name].name for name in used)),
        unused=tuple(stored[name].name for name in unused),
    )


def _canonical(stored: list[Stored], prefix: str) -> dict[str, Stored]:
    """Return the tensors by name, without the prefix and with the current names of norms."""
    named: dict[str, Stored] = {}
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


def _check(source: WeightSource, stored: Mapping[str, Stored], folder: Path) -> None:
    """Raise an error unless the source is stored in its shape, as floating-point numbers."""
    tensor = stored.get(source.name)
    if tensor is None:
        raise UserError(
            f"{folder}: there is no tensor {source.name!r} of shape {list(source.shape)}",
            fix=f"download the weights that belong to this {CONFIG}",
        )
    if tensor.shape != source.shape or tensor.kind not in FLOATS:
        raise UserError(
            f"{tensor.path}: {tensor.name!r} has the wrong shape or type (expected "
            f"{list(source.shape)} in {', '.join(FLOATS)}, got {list(tensor.shape)} in "
            f"{tensor.kind})",
            fix=f"use the weights that belong to this {CONFIG}, not quantized",
        )


def _fill(
    weight_map: WeightMap,
    sources: Mapping[str, WeightSource],
    stored: Mapping[str, Stored],
    dtype: torch.dtype,
) -> GPT | TextEncoder:
    """Build the model on the meta device, then assign the weights."""
    with torch.device("meta"):
        model = weight_map.config.build(weight_map.vocabulary, seed=0)
    weights = {
        name: source.convert(stored[source.name].read())
        .to(dtype)
        .clone(memory_format=torch.contiguous_format)
        for name, source in sources.items()
    }
    tied = isinstance(weight_map.config, GPTConfig) and weight_map.config.tie_embeddings
    if tied:
        embedding, head = weights["embedding.weight"], stored.get("lm_head.weight")
        if head is not None and not torch.equal(head.read().to(dtype), embedding):
            raise UserError(
                f"{head.path}: {head.name!r} differs from the embeddings, but {CONFIG} sets "
                "tie_word_embeddings",
                fix="set tie_word_embeddings to false if the model was trained so",
            )
        weights["lm_head.weight"] = embedding
    model.load_state_dict(weights, assign=True)
    if isinstance(model, GPT) and tied:
        model.lm_head.weight = model.embedding.weight
    return model


# The three families


def _linear(
    theirs: str, ours: str, sizes: tuple[int, int], *, bias: bool = True, transposed: bool = False
) -> Renaming:
    """Yield a linear layer of sizes (in, out), stored as (out, in) unless `transposed`."""
    shape = sizes if transposed else sizes[::-1]
    yield f"{ours}.weight", WeightSource(f"{theirs}.weight", shape, transposed)
    if bias:
        yield f"{ours}.bias", WeightSource(f"{theirs}.bias", sizes[1:])


def _norm(theirs: str, ours: str, width: int, *, bias: bool = True) -> Renaming:
    for part in ("weight", "bias") if bias else ("weight",):
        yield f"{ours}.{part}", WeightSource(f"{theirs}.{part}", (width,))


def _bert(settings: Settings) -> WeightMap:
    settings.only("position_embedding_type", "absolute")
    settings.only("is_decoder", False)
    settings.only("add_cross_attention", False)
    settings.flag("tie_word_embeddings", True)  # of a head that is not loaded
    config = TextEncoderConfig(
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
    vocabulary = settings.size("vocab_size")
    extras = re.compile(r"pooler\..*|cls\..*|embeddings\.position_ids")
    return WeightMap(config, vocabulary, "bert.", _bert_renaming(config, vocabulary), extras)


def _bert_renaming(config: TextEncoderConfig, vocabulary: int) -> Renaming:
    width, inner = config.width, cast(int, config.feedforward.inner)
    for ours, theirs, rows in (
        ("embedding", "word", vocabulary),
        ("backbone.position.tables.0", "position", config.max_length),
        ("segment", "token_type", config.segments),
    ):
        name = f"embeddings.{theirs}_embeddings.weight"
        yield f"{ours}.weight", WeightSource(name, (rows, width))
    yield from _norm("embeddings.LayerNorm", "backbone.norm", width)
    for layer in range(config.layers):
        of, to = f"encoder.layer.{layer}", f"backbone.stack.blocks.{layer}"
        for theirs, ours, sizes in (
            ("attention.self.query", "attention.score.q_proj", (width, width)),
            ("attention.self.key", "attention.score.k_proj", (width, width)),
            ("attention.self.value", "attention.v_proj", (width, width)),
            ("attention.output.dense", "attention.out_proj", (width, width)),
            ("intermediate.dense", "feedforward.up_proj", (width, inner)),
            ("output.dense", "feedforward.down_proj", (inner, width)),
        ):
            yield from _linear(f"{of}.{theirs}", f"{to}.{ours}", sizes)
        yield from _norm(f"{of}.attention.output.LayerNorm", f"{to}.attention_norm", width)
        yield from _norm(f"{of}.output.LayerNorm", f"{to}.feedforward_norm", width)


def _gpt2(settings: Settings) -> WeightMap:
    settings.only("scale_attn_weights", True)
    settings.only("scale_attn_by_inverse_layer_idx", False)
    settings.only("add_cross_attention", False)
    width = settings.size("n_embd")
    config = GPTConfig(
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
    vocabulary = settings.size("vocab_size")
    extras = re.compile(r"h\.\d+\.attn\.(masked_)?bias" + (TIED if config.tie_embeddings else ""))
    return WeightMap(config, vocabulary, "transformer.", _gpt2_renaming(config, vocabulary), extras)


def _gpt2_renaming(config: GPTConfig, vocabulary: int) -> Renaming:
    width, inner = config.width, cast(int, config.feedforward.inner)
    yield "embedding.weight", WeightSource("wte.weight", (vocabulary, width))
    yield "position.tables.0.weight", WeightSource("wpe.weight", (config.max_length, width))
    for layer in range(config.layers):
        of, to = f"h.{layer}", f"stack.blocks.{layer}"
        yield from _norm(f"{of}.ln_1", f"{to}.attention_norm", width)
        yield from _norm(f"{of}.ln_2", f"{to}.feedforward_norm", width)
        for third, ours in enumerate(("score.q_proj", "score.k_proj", "v_proj")):
            fused, name = f"{of}.attn.c_attn", f"{to}.attention.{ours}"
            yield f"{name}.weight", WeightSource(f"{fused}.weight", (width, 3 * width), True, third)
            yield f"{name}.bias", WeightSource(f"{fused}.bias", (3 * width,), False, third)
        for theirs, ours, sizes in (
            ("attn.c_proj", "attention.out_proj", (width, width)),
            ("mlp.c_fc", "feedforward.up_proj", (width, inner)),
            ("mlp.c_proj", "feedforward.down_proj", (inner, width)),
        ):
            yield from _linear(f"{of}.{theirs}", f"{to}.{ours}", sizes, transposed=True)
    yield from _norm("ln_f", "stack.norm", width)
    if not config.tie_embeddings:
        yield "lm_head.weight", WeightSource("lm_head.weight", (vocabulary, width))


def _llama(settings: Settings) -> WeightMap:
    settings.choice("hidden_act", {"silu": 0, "swish": 0}, "silu")
    width, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    head_width = settings.size("head_dim", max(1, width // heads))
    config = GPTConfig(
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
    vocabulary = settings.size("vocab_size")
    angles = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    extras = re.compile(angles + (TIED if config.tie_embeddings else ""))
    return WeightMap(config, vocabulary, "model.", _llama_renaming(config, vocabulary), extras)


def _llama_renaming(config: GPTConfig, vocabulary: int) -> Renaming:
    width, inner = config.width, cast(int, config.feedforward.inner)
    head_width = cast(int, config.attention.head_width)
    joined = head_width * config.attention.heads
    shared = head_width * cast(int, config.attention.kv_heads)
    yield "embedding.weight", WeightSource("embed_tokens.weight", (vocabulary, width))
    for layer in range(config.layers):
        of, to = f"layers.{layer}", f"stack.blocks.{layer}"
        yield from _norm(f"{of}.input_layernorm", f"{to}.attention_norm", width, bias=False)
        after = f"{of}.post_attention_layernorm"
        yield from _norm(after, f"{to}.feedforward_norm", width, bias=False)
        for theirs, ours, sizes in (
            ("self_attn.q_proj", "attention.score.q_proj", (width, joined)),
            ("self_attn.k_proj", "attention.score.k_proj", (width, shared)),
            ("self_attn.v_proj", "attention.v_proj", (width, shared)),
            ("self_attn.o_proj", "attention.out_proj", (joined, width)),
            # Harken computes silu(up_proj) * gate_proj, Llama silu(gate_proj) * up_proj.
            ("mlp.gate_proj", "feedforward.up_proj", (width, inner)),
            ("mlp.up_proj", "feedforward.gate_proj", (width, inner)),
            ("mlp.down_proj", "feedforward.down_proj", (inner, width)),
        ):
            part = config.feedforward if theirs.startswith("mlp") else config.attention
            yield from _linear(f"{of}.{theirs}", f"{to}.{ours}", sizes, bias=part.bias)
    yield from _norm("norm", "stack.norm", width, bias=False)
    if not config.tie_embeddings:
        yield "lm_head.weight", WeightSource("lm_head.weight", (vocabulary, width))


WEIGHT_MAPS: dict[str, Callable[[Settings], WeightMap]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
}
