"""Folders of Whisper have the logits of `transformers`, or are refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from harken.errors import UserError
from harken.foreign import load_huggingface
from harken.models.huggingface import read_folder
from harken.models.recognizer import SpeechRecognizer
from small_huggingface import WHISPER, change, change_weights, write_folder
from small_models import add_noise

os.environ["HF_HUB_OFFLINE"] = "1"
FRAMES = 94  # two for each position of the encoder
LENGTHS = (94, 53, 5)


def read_recognizer(folder: Path, dtype: torch.dtype = torch.float32) -> SpeechRecognizer:
    model = read_folder(folder, dtype=dtype).model
    assert isinstance(model, SpeechRecognizer)
    return model.eval()


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@torch.no_grad()
def test_logits_equal_those_of_transformers(tmp_path: Path, activation: str) -> None:
    theirs = pytest.importorskip("transformers")
    config = theirs.WhisperConfig(**WHISPER, activation_function=activation, pad_token_id=0)
    reference = theirs.WhisperForConditionalGeneration(config)
    add_noise(reference, strength=1.2)
    reference.save_pretrained(tmp_path)
    reference = reference.double().eval()
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(WHISPER["vocab_size"], (3, 29), generator=generator)
    frames = torch.randn(3, FRAMES, 7, generator=generator, dtype=torch.float64)
    present = torch.arange(FRAMES) < torch.tensor(LENGTHS)[:, None]
    smallest = frames.masked_fill(~present[..., None], torch.inf).amin(dim=(1, 2), keepdim=True)
    silent = torch.where(present[..., None], frames, smallest)
    expected = reference(input_features=silent.transpose(1, 2), decoder_input_ids=tokens).logits
    assert expected.std() > 0.1
    model = read_recognizer(tmp_path, torch.float64)
    logits = model(frames, present, tokens).decoder_logits
    assert_close(logits, expected, rtol=0, atol=1e-10)
    narrow = read_recognizer(tmp_path)(frames.float(), present, tokens).decoder_logits
    assert_close(narrow, expected.float(), rtol=0, atol=1e-5)
    # The same for one sound alone, and token by token.
    alone = model.encode(frames[1:2, : LENGTHS[1]], present[1:2, : LENGTHS[1]])
    state, steps = model.init_state(*alone), []
    for column in tokens[1:2].split(1, dim=1):
        states, state = model.step(column, None, state)
        steps.append(model.logits(states))
    assert_close(torch.cat(steps, dim=1), expected[1:2], rtol=0, atol=1e-10)
    read = read_folder(tmp_path)
    assert set(read.used) == load_file(tmp_path / "model.safetensors").keys()
    assert read.unused == () and read.vocabulary == WHISPER["vocab_size"]


def test_output_weights_are_the_embeddings(tmp_path: Path) -> None:
    write_folder(tmp_path, "whisper")
    embeddings = load_file(tmp_path / "model.safetensors")["decoder.embed_tokens.weight"]
    change_weights(
        tmp_path, lambda weights: weights.update({"proj_out.weight": embeddings.clone()})
    )
    assert read_folder(tmp_path).unused == ("proj_out.weight",)
    model = read_recognizer(tmp_path)
    assert (
        model.decoder is not None and model.decoder.lm_head.weight is model.decoder.embedding.weight
    )
    change_weights(tmp_path, lambda weights: weights["proj_out.weight"].add_(1))
    with pytest.raises(UserError, match="differs from the token embeddings"):
        read_folder(tmp_path)


BAD_SETTINGS: list[dict[str, Any]] = [
    {"scale_embedding": True},
    {"is_encoder_decoder": False},
    {"tie_word_embeddings": False},
    {"activation_function": "silu"},
    {"d_model": 0},
    {"decoder_layers": None},
    {"num_mel_bins": "80"},
    {"rope_theta": 10000.0},
]


@pytest.mark.parametrize("settings", BAD_SETTINGS, ids=repr)
def test_unsupported_settings_are_rejected(tmp_path: Path, settings: dict[str, Any]) -> None:
    change(write_folder(tmp_path, "whisper"), **settings)
    with pytest.raises(UserError, match=f"config.json: .*{next(iter(settings))}"):
        read_folder(tmp_path)


@pytest.mark.parametrize("changed", [{"hop_length": 320}, {"n_fft": 512}, {"feature_size": 80}])
def test_other_features_are_rejected(tmp_path: Path, changed: dict[str, int]) -> None:
    write_folder(tmp_path, "whisper")
    features = {"feature_size": 7, "hop_length": 160, "n_fft": 400, "sampling_rate": 16_000}
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(features), encoding="utf-8")
    read_folder(tmp_path)
    path.write_text(json.dumps(features | changed), encoding="utf-8")
    with pytest.raises(UserError, match=f"preprocessor_config.json: .*{next(iter(changed))}"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("encoder.conv2.bias", {}),
        ("decoder.layers.2.encoder_attn.k_proj.weight", {}),
        ("encoder.layers.2.self_attn_layer_norm.weight", {"encoder_layers": 2**31 - 1}),
    ],
)
@pytest.mark.timeout(20)
def test_missing_weights_are_named(tmp_path: Path, name: str, layers: dict[str, int]) -> None:
    change(write_folder(tmp_path, "whisper"), **layers)
    change_weights(tmp_path, lambda weights: weights.pop(name, None))
    with pytest.raises(UserError, match="no tensor"):
        read_folder(tmp_path)


def test_a_recognizer_is_not_a_model_of_texts(tmp_path: Path) -> None:
    write_folder(tmp_path, "whisper")
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})
    )
    with pytest.raises(UserError, match="'whisper' reads sounds"):
        load_huggingface(tmp_path, "cpu")
