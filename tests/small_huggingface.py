"""Hugging Face folders with small random weights, written without `transformers`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

from harken.models.huggingface_files import Settings
from harken.models.huggingface_types import ARCHITECTURES

Weights = dict[str, Tensor]

WORD_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "they", "du", "##ck", "and", "swim"]
WORD_PIECES += [
    "here",
    *(str(digit) for digit in range(10)),
    *(f"##{digit}" for digit in range(10)),
]

# Distinct sizes: a swapped axis cannot pass by luck.
GPT2 = {"vocab_size": 29, "n_positions": 17, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20}
LLAMA = {
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 23,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 19,
    "rms_norm_eps": 1e-3,
}
BERT = {
    "vocab_size": 37,
    "hidden_size": 15,
    "intermediate_size": 22,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 13,
    "type_vocab_size": 3,
}
GPT_NEOX = {
    "vocab_size": 41,
    "hidden_size": 24,
    "intermediate_size": 23,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 19,
}
SIZES: dict[str, dict[str, Any]] = {
    "bert": BERT,
    "gpt2": GPT2,
    "llama": LLAMA,
    "gpt_neox": GPT_NEOX,
}


def write(folder: Path, config: dict[str, Any], weights: Weights) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(weights, folder / "model.safetensors")
    return folder


def change(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **settings}
    path.write_text(json.dumps(config), encoding="utf-8")


def change_weights(folder: Path, alter: Callable[[Weights], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    alter(weights)
    save_file(weights, folder / "model.safetensors")


def write_folder(folder: Path, family: str, **settings: Any) -> Path:
    """Write a folder of this model type, with random weights."""
    config = {"model_type": family, **SIZES[family], **settings}
    architecture = ARCHITECTURES[family]
    model_config = architecture.read_config(Settings(folder, config))
    generator = torch.Generator().manual_seed(1)
    sources = dict(architecture.sources(model_config, config["vocab_size"])).values()
    shapes = {source.name: source.shape for source in sources}
    weights = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return write(folder, config, weights)


def write_bert(folder: Path, **settings: Any) -> Path:
    """Write a small BERT with an uncased WordPiece tokenizer; three embeddings have no token."""
    sizes = {"vocab_size": len(WORD_PIECES) + 3, "max_position_embeddings": 40, **settings}
    write_folder(folder, "bert", **sizes)
    ids = {piece: number for number, piece in enumerate(WORD_PIECES)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(WORD_PIECES[:5])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
