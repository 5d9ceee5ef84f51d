"""The model types of Hugging Face that Harken loads: settings, names and layouts of weights."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig
from harken.attention.relative import RotaryConfig
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.norm import NormConfig
from harken.models.encoders import TextEncoderConfig
from harken.models.gpt import GPTConfig
from harken.models.huggingface_files import (
    ACTIVATIONS,
    Settings,
    rotary_config,
)
from harken.models.huggingface_whisper import WHISPER_NAMES, read_whisper_config
from harken.models.recognizer import PretrainedRecognizerConfig

PretrainedConfig = GPTConfig | TextEncoderConfig | PretrainedRecognizerConfig


@dataclass(frozen=True, slots=True)
class WeightSource:
    """The tensor of the file that contains a weight, and how to convert it."""

    name: str
    shape: tuple[int, ...]  # as stored
    transposed: bool  # stored as (in, out)
    fused_index: int | None  # which of three weights, if they are fused along the output axis
    heads: int | None = None  # the three are fused separately for each of these heads
    rotated: int | None = None  # rotated features per head, which are the first ones in the file

    def convert(self, stored: Tensor) -> Tensor:
        weight = stored
        if self.fused_index is not None and self.heads is not None:
            by_head = stored.view(self.heads, 3, -1, *stored.shape[1:])[:, self.fused_index]
            weight = by_head if self.rotated is None else pair_halves(by_head, self.rotated)
            weight = weight.flatten(0, 1)
        elif self.fused_index is not None:
            weight = stored.chunk(3, dim=-1)[self.fused_index]
        return weight.t() if self.transposed else weight

    def write(self, weight: Tensor, stored: Tensor) -> None:
        """Write a weight to its place in the stored tensor; the inverse of `convert`."""
        places = self.convert(torch.arange(stored.numel()).view(stored.shape))
        stored.view(-1)[places.reshape(-1)] = weight.reshape(-1).to(stored.dtype)


def pair_halves(heads: Tensor, rotated: int) -> Tensor:
    """Reorder the features of queries or keys (axis 1), so that n and n + U/2 are a rotary pair.

    As stored, the pairs are n and n + rotated/2. Scores do not depend on the order.
    """
    first, second, others = heads.tensor_split((rotated // 2, rotated), dim=1)
    low, high = others.chunk(2, dim=1)
    return torch.cat((first, low, second, high), dim=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A model type of Hugging Face. In `names`, # stands for the layer index."""

    read_config: Callable[[Settings], PretrainedConfig]
    # Harken's module -> module in the file; three with the same value are fused
    names: Mapping[str, str]
    prefix: str  # optional prefix of the names in the file
    ignored: str  # regular expression of tensors to ignore
    conv1d: bool = False  # whether projections are stored as (in, out), as in GPT-2
    fused_by_head: bool = False  # whether fused projections are fused separately for each head

    def sources(
        self, config: PretrainedConfig, vocabulary: int
    ) -> Iterator[tuple[str, WeightSource]]:
        """Yield each weight's name and source; lazily, since `layers` may be wrong and huge."""
        with torch.device("meta"):
            template = one_layer(config).build(vocabulary, seed=0).state_dict()
        if (head := tied_head(config)) is not None:
            del template[head]
        for layer in range(max(stack_layers(config).values())):
            for name, weight in template.items():
                module, _, parameter = name.replace("blocks.0.", "blocks.#.").rpartition(".")
                stack = module.partition("stack.")[0] if "#" in module else None
                if layer >= (1 if stack is None else stack_layers(config)[stack]):
                    continue
                file_module = self.names[module.removeprefix("backbone.")]
                fused = [key for key, value in self.names.items() if value == file_module]
                fused_index = fused.index(module) if len(fused) == 3 else None
                # In GPT-2, matrices of blocks are transposed, embeddings are not. Vectors do not
                # change when transposed.
                transposed = self.conv1d and "#" in module
                shape = tuple(weight.shape)[::-1] if transposed else tuple(weight.shape)
                heads = None
                if self.fused_by_head:
                    assert isinstance(config, GPTConfig)
                    heads = config.attention.heads
                if fused_index is not None and heads is None:
                    shape = (*shape[:-1], 3 * shape[-1])
                elif fused_index is not None:
                    shape = (3 * shape[0], *shape[1:])
                rotated = rotated_width(config) if ".score." in module else None
                weight_name, stored_name = (
                    f"{path}.{parameter}".replace("#", str(layer)) for path in (module, file_module)
                )
                source = WeightSource(stored_name, shape, transposed, fused_index, heads, rotated)
                yield weight_name, source


def stack_layers(config: PretrainedConfig) -> dict[str, int]:
    """Return the number of layers of each stack, by the prefix of its name."""
    if isinstance(config, PretrainedRecognizerConfig):
        encoder, decoder = config.stacks
        return {"encoder.": encoder.layers, "decoder.": decoder.layers}
    return {"backbone." if isinstance(config, TextEncoderConfig) else "": config.layers}


def one_layer(config: PretrainedConfig) -> PretrainedConfig:
    """Return the config of the same model with one layer in each stack."""
    if not isinstance(config, PretrainedRecognizerConfig):
        return replace(config, layers=1)
    encoder, decoder = config.stacks
    recognizer = replace(
        config.recognizer, encoder=replace(encoder, layers=1), decoder=replace(decoder, layers=1)
    )
    return replace(config, recognizer=recognizer)


def tied_head(config: PretrainedConfig) -> str | None:
    """Return the name of the output weights if they are the token embeddings."""
    if isinstance(config, PretrainedRecognizerConfig):
        return "decoder.lm_head.weight"
    is_tied = isinstance(config, GPTConfig) and config.tie_embeddings
    return "lm_head.weight" if is_tied else None


def rotated_width(config: PretrainedConfig) -> int | None:
    """Return the number of features of each head that are rotated; None if it is all or none."""
    if isinstance(config, PretrainedRecognizerConfig):
        return None
    fraction: float = getattr(config.position, "fraction", 1.0)
    _, key_width = config.attention.head_widths(config.width)
    return None if fraction == 1.0 else 2 * (int(fraction * key_width) // 2)


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
        position=rotary_config(settings, RotaryConfig()),
        feedforward=FeedForwardConfig(
            activation="swiglu",
            inner=settings.size("intermediate_size"),
            bias=settings.flag("mlp_bias", False),
        ),
        norm=NormConfig(kind="rms", eps=settings.number("rms_norm_eps", 1e-6)),
        tie_embeddings=settings.flag("tie_word_embeddings", False),
    )


def _read_gpt_neox_config(settings: Settings) -> GPTConfig:
    settings.require("attention_bias", True)
    settings.require("is_decoder", False)
    # Older files name the rotary settings differently.
    defaults = RotaryConfig(
        base=settings.number("rotary_emb_base", 10000.0),
        fraction=settings.number("rotary_pct", 0.25),
    )
    return GPTConfig(
        layers=settings.size("num_hidden_layers"),
        width=settings.size("hidden_size"),
        max_length=settings.size("max_position_embeddings"),
        attention=MultiHeadConfig(heads=settings.size("num_attention_heads"), bias=True),
        position=rotary_config(settings, defaults),
        feedforward=FeedForwardConfig(
            activation=settings.choice("hidden_act", ACTIVATIONS, "gelu"),
            inner=settings.size("intermediate_size"),
        ),
        norm=NormConfig(
            place="parallel" if settings.flag("use_parallel_residual", True) else "pre",
            eps=settings.number("layer_norm_eps", 1e-5),
        ),
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
    "gpt_neox": Architecture(
        read_config=_read_gpt_neox_config,
        names={
            "embedding": "gpt_neox.embed_in",
            "stack.blocks.#.attention_norm": "gpt_neox.layers.#.input_layernorm",
            "stack.blocks.#.attention.score.q_proj": "gpt_neox.layers.#.attention.query_key_value",
            "stack.blocks.#.attention.score.k_proj": "gpt_neox.layers.#.attention.query_key_value",
            "stack.blocks.#.attention.v_proj": "gpt_neox.layers.#.attention.query_key_value",
            "stack.blocks.#.attention.out_proj": "gpt_neox.layers.#.attention.dense",
            "stack.blocks.#.feedforward_norm": "gpt_neox.layers.#.post_attention_layernorm",
            "stack.blocks.#.feedforward.up_proj": "gpt_neox.layers.#.mlp.dense_h_to_4h",
            "stack.blocks.#.feedforward.down_proj": "gpt_neox.layers.#.mlp.dense_4h_to_h",
            "stack.norm": "gpt_neox.final_layer_norm",
            "lm_head": "embed_out",
        },
        prefix="",
        ignored=r"gpt_neox\.layers\.\d+\.attention\.(masked_bias|bias|rotary_emb\.inv_freq)",
        fused_by_head=True,
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
    "whisper": Architecture(
        read_config=read_whisper_config,
        names=WHISPER_NAMES,
        prefix="model.",
        ignored=r"proj_out\.weight",
    ),
}
