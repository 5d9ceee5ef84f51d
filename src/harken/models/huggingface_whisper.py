"""The model type `whisper` of Hugging Face: settings and names of weights."""

from pathlib import Path
from typing import Any

from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import LearnedConfig
from harken.inputs import is_file
from harken.layers.feedforward import FeedForwardConfig
from harken.layers.frontends import Conv1dSubsamplingConfig
from harken.models.decoders import TransformerDecoderConfig
from harken.models.encoders import TransformerEncoderConfig
from harken.models.huggingface_files import (
    ACTIVATIONS,
    MAX_CONFIG_BYTES,
    Settings,
    read_json_object,
)
from harken.models.recognizer import PretrainedRecognizerConfig, RecognizerConfig

PREPROCESSOR_CONFIG = "preprocessor_config.json"
# Harken's module -> module in the file, as in `Architecture.names`
WHISPER_NAMES = {
    "frontend.first": "encoder.conv1",
    "frontend.second": "encoder.conv2",
    "encoder.position.tables.0": "encoder.embed_positions",
    "encoder.stack.norm": "encoder.layer_norm",
    "decoder.embedding": "decoder.embed_tokens",
    "decoder.position.tables.0": "decoder.embed_positions",
    "decoder.stack.norm": "decoder.layer_norm",
    "decoder.lm_head": "proj_out",
    **{
        f"{part}.stack.blocks.#.{module}": f"{part}.layers.#.{stored}"
        for part in ("encoder", "decoder")
        for module, stored in {
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
        }.items()
    },
}


def read_whisper_config(settings: Settings) -> PretrainedRecognizerConfig:
    """Return the architecture that a config.json of Whisper describes."""
    settings.require("is_encoder_decoder", True)
    settings.require("scale_embedding", False)
    settings.require("tie_word_embeddings", True)
    # Of training and of decoding; encode/whisper_tokenizer.py reads what decoding needs.
    settings.ignore("num_hidden_layers", "apply_spec_augment", "init_std", "median_filter_width")
    settings.ignore("encoder_layerdrop", "decoder_layerdrop", "classifier_proj_size")
    settings.ignore("forced_decoder_ids", "suppress_tokens", "begin_suppress_tokens")
    settings.ignore(*(key for key in settings.values if key.startswith("mask_")))
    width, features = settings.size("d_model"), settings.size("num_mel_bins", 80)
    _check_preprocessor(settings.path.with_name(PREPROCESSOR_CONFIG), features)
    positions = settings.size("max_source_positions", 1500)
    activation = settings.choice("activation_function", ACTIVATIONS, "gelu")

    def layers(part: str) -> dict[str, Any]:
        heads = settings.size(f"{part}_attention_heads")
        inner = settings.size(f"{part}_ffn_dim")
        return {
            "layers": settings.size(f"{part}_layers"),
            "attention": MultiHeadConfig(heads=heads, bias=True, key_bias=False),
            "feedforward": FeedForwardConfig(activation=activation, inner=inner),
            "position": LearnedConfig(),  # the encoder's table has sinusoids
            "dropout": 0.0,
        }

    recognizer = RecognizerConfig(
        width=width,
        frontend=Conv1dSubsamplingConfig(min_frames=2 * positions),
        encoder=TransformerEncoderConfig(max_length=positions, **layers("encoder")),
        ctc=False,
        decoder=TransformerDecoderConfig(
            width=width, max_length=settings.size("max_target_positions", 448), **layers("decoder")
        ),
        dropout=0.0,
    )
    return PretrainedRecognizerConfig(recognizer=recognizer, features=features)


def _check_preprocessor(path: Path, features: int) -> None:
    """Raise an error if the features are not those of `encode/whisper_filterbank.py`."""
    if is_file(path):
        settings = Settings(path, read_json_object(path, MAX_CONFIG_BYTES))
        expected = {"feature_size": features, "sampling_rate": 16_000, "hop_length": 160}
        for key, value in {**expected, "n_fft": 400, "dither": 0.0}.items():
            settings.require(key, value)
