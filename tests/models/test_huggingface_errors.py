"""Folders of Hugging Face that cannot be loaded with equal outputs are refused."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from harken.errors import Failure, UserError
from harken.models.huggingface import read_folder
from small_huggingface import Weights, change, change_weights, write_folder


def refusal(folder: Path, *words: str, error: type[UserError | Failure] = UserError) -> None:
    with pytest.raises(error) as caught:
        read_folder(folder)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_contradicted_tie_is_rejected(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "llama")
    change(folder, tie_word_embeddings=True)
    refusal(folder, "lm_head.weight", "tie_word_embeddings")


BAD_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("bert", {"is_decoder": True}),
    ("bert", {"add_cross_attention": True}),
    ("bert", {"position_embedding_type": "relative_key_query"}),
    ("bert", {"hidden_act": "silu"}),
    ("bert", {"layer_norm_eps": 0}),
    ("bert", {"num_attention_heads": True}),
    ("bert", {"num_hidden_layers": 0}),
    ("bert", {"hidden_size": "15"}),
    ("bert", {"vocab_size": None}),
    ("bert", {"vocab_size": 2**40}),
    ("bert", {"pruned_heads": {"0": [1]}}),
    ("bert", {"quantization_config": {"bits": 4}}),
    ("bert", {"auto_map": {"AutoModel": "evil.Model"}}),
    ("gpt2", {"scale_attn_weights": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"add_cross_attention": True}),
    ("gpt2", {"activation_function": "tanh"}),
    ("gpt2", {"tie_word_embeddings": "yes"}),
    ("gpt2", {"some_new_thing": 0}),
    ("llama", {"hidden_act": "gelu"}),
    ("llama", {"sliding_window": 4096}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
    ("llama", {"rope_scaling": "linear"}),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 1e4}),
    ("llama", {"rope_theta": 1}),
    ("llama", {"num_key_value_heads": 3}),
    ("llama", {"head_dim": 5}),
]


@pytest.mark.parametrize(("family", "settings"), BAD_SETTINGS)
def test_unsupported_settings_are_rejected(
    tmp_path: Path, family: str, settings: dict[str, Any]
) -> None:
    folder = write_folder(tmp_path, family)
    change(folder, **settings)
    (name, *_) = settings
    inside = {"num_key_value_heads": "kv_heads", "head_dim": "even key width, got 5"}
    refusal(folder, "config.json", inside.get(name, f"'{name}'" if name != "rope_theta" else name))


@pytest.mark.parametrize("kind", ["mistral", "", None, "harken.models.encoders"])
def test_unknown_model_type_is_rejected(tmp_path: Path, kind: str | None) -> None:
    folder = write_folder(tmp_path, "bert")
    change(folder, model_type=kind)
    refusal(folder, repr(kind or ""), "bert, gpt2, gpt_neox, llama")


def test_model_type_must_be_a_string(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "bert")
    change(folder, model_type=["bert"])
    refusal(folder, "'model_type'", "a string")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "JSON object"),
        (b'{"model_type": "bert"', "JSON object"),
        (b"[1, 2]", "got list"),
        (b'{"model_type": "\xff"}', "JSON object"),
        (b"[" * 200_000, "JSON object"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "JSON object"),
        (b'{"model_type": "bert"}' + b" " * 2**20, "at most 1,048,576"),
        (b'{"rope_theta": Infinity}', "Infinity is not a JSON number"),
    ],
)
def test_a_broken_config_is_refused(tmp_path: Path, content: bytes, word: str) -> None:
    folder = write_folder(tmp_path, "bert")
    (folder / "config.json").write_bytes(content)
    refusal(folder, "config.json", word)


def test_a_config_of_just_the_largest_size_is_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "bert")
    content = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(content.ljust(2**20))
    assert read_folder(folder).vocabulary == 37


def test_missing_files_are_named(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere", "config.json", "file not found")
    folder = write_folder(tmp_path, "bert")
    (folder / "model.safetensors").unlink()
    refusal(folder, "model.safetensors", "file not found")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    refusal(folder, "pytorch_model.bin", "convert to safetensors")
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    refusal(folder, "config.json", "file not found")


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_weights_are_a_failure(tmp_path: Path, keep: int) -> None:
    path = write_folder(tmp_path, "bert") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refusal(tmp_path, "model.safetensors", "download it again", error=Failure)


def replaced(name: str, tensor: Tensor) -> Callable[[Weights], object]:
    return lambda weights: weights.update({name: tensor})


NORM, VALUE = "encoder.layer.1.output.LayerNorm.bias", "encoder.layer.0.attention.self.value.weight"
BAD_WEIGHTS: list[tuple[Callable[[Weights], object], tuple[str, ...]]] = [
    (lambda weights: weights.pop(NORM), (NORM, "no tensor", "[15]")),
    (replaced(VALUE, torch.zeros(15, 14)), (VALUE, "[15, 14]", "[15, 15]")),
    (replaced(VALUE, torch.zeros(15, 15, dtype=torch.int8)), (VALUE, "I8", "not quantized")),
    (replaced("classifier.weight", torch.zeros(2, 15)), ("'classifier.weight'", "unexpected")),
    (
        replaced("encoder.layer.2.output.dense.bias", torch.zeros(15)),
        ("layer.2.output", "unexpected"),
    ),
    (
        replaced(f"bert.{NORM}", torch.zeros(15)),
        (f"'bert.{NORM}'", f"'{NORM}'", "two names of one parameter"),
    ),
]


@pytest.mark.parametrize(("alter", "words"), BAD_WEIGHTS)
def test_wrong_weights_are_rejected(
    tmp_path: Path, alter: Callable[[Weights], object], words: tuple[str, ...]
) -> None:
    folder = write_folder(tmp_path, "bert")
    change_weights(folder, alter)
    refusal(folder, *words)


@pytest.mark.parametrize(
    ("family", "settings", "word"),
    [
        ("gpt2", {"n_layer": 2**31 - 1}, "h.2.attn.c_attn.weight"),
        ("gpt2", {"n_embd": 3 * 2**29}, "sizes cannot be built"),
        ("llama", {"intermediate_size": 2**31 - 1}, "mlp.gate_proj.weight"),
        ("bert", {"max_position_embeddings": 2**31 - 1}, "position_embeddings"),
    ],
)
@pytest.mark.timeout(20)
def test_sizes_larger_than_the_file_are_rejected_early(
    tmp_path: Path, family: str, settings: dict[str, Any], word: str
) -> None:
    folder = write_folder(tmp_path, family)
    change(folder, **settings)
    refusal(folder, word)


def test_missing_head_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "llama")
    change_weights(folder, lambda weights: weights.pop("lm_head.weight"))
    refusal(folder, "'lm_head.weight'")


def sharded(folder: Path) -> Path:
    """Two shards of every other tensor, with their index."""
    weights = load_file(write_folder(folder, "bert") / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-{number}-of-2.safetensors" for number in (1, 2)]
    places = {name: names[turn % 2] for turn, name in enumerate(sorted(weights))}
    for shard in names:
        part = {name: tensor for name, tensor in weights.items() if places[name] == shard}
        save_file(part, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
    return folder


def test_shards_equal_the_whole_file(tmp_path: Path) -> None:
    whole = read_folder(write_folder(tmp_path / "whole", "bert"))
    parts = read_folder(sharded(tmp_path / "parts"))
    assert parts.used == whole.used
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, parts.model.state_dict()[name])


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/etc/passwd", "pytorch_model.bin"])
def test_shards_outside_the_folder_are_refused(tmp_path: Path, shard: str) -> None:
    folder = sharded(tmp_path / "parts")
    save_file({NORM: torch.zeros(15)}, tmp_path / "outside.safetensors")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    index.write_text(json.dumps({"weight_map": {**places, NORM: shard}}), encoding="utf-8")
    refusal(folder, "index.json", repr(shard), "in this folder")


@pytest.mark.parametrize(
    "index",
    ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": {"a": 1}}'],
)
def test_a_broken_index_is_refused(tmp_path: Path, index: str) -> None:
    folder = sharded(tmp_path)
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    refusal(folder, "index.json")


def test_an_index_and_shards_that_disagree_are_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    del places[NORM]
    index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    refusal(folder, "index.json", NORM, "both in the index")
    (folder / "model-2-of-2.safetensors").unlink()
    refusal(folder, "model-2-of-2.safetensors", "download every shard")
