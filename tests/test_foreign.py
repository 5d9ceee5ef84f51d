"""Attention of Hugging Face folders compared with `transformers`."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from harken.cli.main import main
from harken.encode.tokenizer_file import MAX_BYTES
from harken.errors import UserError
from harken.foreign import TOKENIZER, is_huggingface, load_huggingface
from harken.report.viewed_attention import view_attention
from harken.tasks.prediction import Truncation

os.environ["HF_HUB_OFFLINE"] = "1"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "bank", "of", "a", "river", "▁duck", "ä"]
GPT2 = {"vocab_size": 29, "n_positions": 17, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20}
LLAMA = {
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 23,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 19,
}
BERT = {
    "vocab_size": 37,
    "hidden_size": 15,
    "intermediate_size": 22,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 13,
}
SIZES = {"Bert": BERT, "GPT2": GPT2, "Llama": LLAMA}
TEXT = "the bank of a bank"


def tokenizer_of(kind: str) -> Tokenizer:
    """Return a word tokenizer, for BERT with special tokens and padding."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(WORDS[:4])
    if kind == "Bert":
        ends = [("[CLS]", 2), ("[SEP]", 3)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=ends
        )
        tokenizer.enable_padding(length=11)
        tokenizer.enable_truncation(4)
    return tokenizer


@pytest.fixture(scope="module")
def theirs() -> Any:
    return pytest.importorskip("transformers", reason="transformers is what we compare with")


def save(kind: str, theirs: Any, folder: Path) -> tuple[str, Path, Any]:
    """(kind, folder, their model); weights large enough that heads differ."""
    config = getattr(theirs, f"{kind}Config")(**SIZES[kind], attn_implementation="eager")
    name = {"Bert": "BertModel", "GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}[kind]
    model = getattr(theirs, name)(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * parameter.shape[-1] ** -0.5, generator=generator)
    model.save_pretrained(folder)
    tokenizer_of(kind).save(str(folder / TOKENIZER))
    return kind, folder, model


@pytest.fixture(scope="module", params=SIZES)
def saved(request: pytest.FixtureRequest, theirs: Any, tmp_path_factory: Any) -> Any:
    return save(request.param, theirs, tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def gpt2(theirs: Any, tmp_path_factory: Any) -> Path:
    return save("GPT2", theirs, tmp_path_factory.mktemp("foreign"))[1]


def test_weights_are_those_of_transformers(saved: Any) -> None:
    kind, folder, model = saved
    foreign = load_huggingface(folder, "cpu")
    example = foreign.attention(TEXT)
    (viewed,) = view_attention(foreign.model, example)
    ends = kind == "Bert"
    numbers = [2] * ends + [4, 5, 6, 7, 5] + [3] * ends
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([numbers]), output_attentions=True)
    assert len(viewed.layers) == len(expected.attentions) == 2
    for layer, weights in zip(viewed.layers, expected.attentions, strict=True):
        np.testing.assert_allclose(layer.weights, weights[0].numpy(), rtol=0, atol=1e-5)
    prefix = [WORDS[number] for number in numbers]
    assert list(viewed.view.keys) == prefix
    if ends:
        assert list(viewed.view.queries) == prefix and example.title == TEXT
        return
    after = int(expected.logits[0, -1].argmax())
    output = WORDS[after].replace("▁", " ") if after < len(WORDS) else f"<{after}>"
    assert list(viewed.view.queries) == [*prefix[1:], output]
    assert example.title == f"{TEXT} → {output!r}"


def test_a_text_is_cut_to_what_the_model_reads(saved: Any) -> None:
    kind, folder, _ = saved
    foreign = load_huggingface(folder, "cpu")
    example = foreign.attention("the river " * 50)
    (view,) = example.views
    assert len(view.keys) == foreign.model.max_length
    own = foreign.model.max_length - (2 if kind == "Bert" else 0)
    assert example.truncation == Truncation(kept=own, total=100, part="first")
    assert foreign.attention(TEXT).truncation is None
    assert kind != "Bert" or view.keys[-1] == "[SEP]"  # the ends stay
    view_attention(foreign.model, foreign.attention("the river " * 50))


def test_the_same_pages(gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_huggingface(gpt2) and not is_huggingface(tmp_path)
    assert main(["inspect", str(gpt2), TEXT, "--out", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["task"] == "gpt2 of Hugging Face"
    (item,) = result["inputs"]
    assert [Path(path).name for path in item["files"]] == [
        f"the-bank-of-a-bank-1{ending}" for ending in (".html", "-view-1.svg", "-view-1.png")
    ]
    assert TEXT in (tmp_path / "the-bank-of-a-bank-1.html").read_text(encoding="utf-8")


def test_pieces_of_bytes_and_of_sentencepiece(gpt2: Path) -> None:
    foreign = load_huggingface(gpt2, "cpu")
    assert foreign.token_texts([9, 10, 28]) == [" duck", "ä", "<28>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = {letter: number for number, letter in enumerate([*alphabet, "Ġa"])}
    of_bytes = Tokenizer(models.BPE(numbers, [("Ġ", "a")]))
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    tokens = of_bytes.encode("x aä").ids
    assert replace(foreign, tokenizer=of_bytes).token_texts(tokens) == [
        "x",
        " a",
        "Ã",
        "¤",
    ]  # parts of a character


def test_bad_tokenizers(gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(gpt2 / name)
    command = ["inspect", str(tmp_path), f"{TEXT} strange", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "expected the model's tokenizer" in capsys.readouterr().err
    path, whole = tmp_path / TOKENIZER, json.loads((gpt2 / TOKENIZER).read_text(encoding="utf-8"))
    vocabulary = whole["model"]["vocab"]
    for changed, sentence in (
        ([], "cannot be loaded"),
        ({"vocab": {**vocabulary, "bank": 50}}, "token or segment 50 is too large"),
        ({"unk_token": "[GONE]"}, "is not in its vocabulary"),
    ):
        damaged = {**whole, "model": {**whole["model"], **changed}} if changed else changed
        path.write_text(json.dumps(damaged), encoding="utf-8")
        assert main(command) == 2
        printed = capsys.readouterr().err
        assert sentence in printed and printed.count("\n") == 1
    assert not (tmp_path / "out").exists()
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(UserError, match="expected a tokenizer of at most"):
        load_huggingface(tmp_path)


def test_empty_texts(saved: Any) -> None:
    kind, folder, _ = saved
    foreign = load_huggingface(folder, "cpu")
    if kind == "Bert":
        assert list(foreign.attention("").views[0].keys) == ["[CLS]", "[SEP]"]
        return
    with pytest.raises(UserError, match="the text has no tokens"):
        foreign.attention("")
