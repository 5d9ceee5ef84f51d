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

from command_line import Cli
from harken.encode.pretrained import TOKENIZER_FILE
from harken.encode.tokenizer_file import MAX_BYTES
from harken.errors import UserError
from harken.foreign import is_huggingface, load_huggingface
from harken.report.viewed_attention import view_attention
from harken.tasks.prediction import Truncation
from small_huggingface import SIZES

os.environ["HF_HUB_OFFLINE"] = "1"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "bank", "of", "a", "river", "▁duck", "ä"]
CLASSES = {
    "bert": "BertModel",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
}
TEXT = "the bank of a bank"


def tokenizer_of(kind: str) -> Tokenizer:
    """Return a word tokenizer, for BERT with special tokens and padding."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(WORDS[:4])
    if kind == "bert":
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
    model_class = getattr(theirs, CLASSES[kind])
    config = model_class.config_class(**SIZES[kind], attn_implementation="eager")
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * parameter.shape[-1] ** -0.5, generator=generator)
    model.save_pretrained(folder)
    tokenizer_of(kind).save(str(folder / TOKENIZER_FILE))
    return kind, folder, model


@pytest.fixture(scope="module", params=SIZES)
def saved(request: pytest.FixtureRequest, theirs: Any, tmp_path_factory: Any) -> Any:
    return save(request.param, theirs, tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def gpt2(theirs: Any, tmp_path_factory: Any) -> Path:
    return save("gpt2", theirs, tmp_path_factory.mktemp("foreign"))[1]


def test_weights_are_those_of_transformers(saved: Any) -> None:
    kind, folder, model = saved
    foreign = load_huggingface(folder, "cpu")
    example = foreign.attention(TEXT)
    (viewed,) = view_attention(foreign.model, example)
    ends = kind == "bert"
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
    own = foreign.model.max_length - (2 if kind == "bert" else 0)
    assert example.truncation == Truncation(kept=own, total=100, part="first")
    assert foreign.attention(TEXT).truncation is None
    assert kind != "bert" or view.keys[-1] == "[SEP]"  # the ends stay
    view_attention(foreign.model, foreign.attention("the river " * 50))


def test_the_same_pages(gpt2: Path, tmp_path: Path, cli: Cli) -> None:
    assert is_huggingface(gpt2) and not is_huggingface(tmp_path)
    result = cli.json("inspect", gpt2, TEXT, "--out", tmp_path)
    assert result["task"] == "Hugging Face gpt2"
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
    parts = ["x", " a", "Ã", "¤"]  # the last two are parts of a character
    assert replace(foreign, tokenizer=of_bytes).token_texts(tokens) == parts


def test_bad_tokenizers(gpt2: Path, tmp_path: Path, cli: Cli) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(gpt2 / name)
    command = ("inspect", tmp_path, f"{TEXT} strange", "--out", tmp_path / "out")
    assert "expected the model's tokenizer" in cli.error(*command)
    path, whole = (
        tmp_path / TOKENIZER_FILE,
        json.loads((gpt2 / TOKENIZER_FILE).read_text(encoding="utf-8")),
    )
    vocabulary = whole["model"]["vocab"]
    for changed, sentence in (
        ([], "cannot be loaded"),
        ({"vocab": {**vocabulary, "bank": 50}}, "token or segment 50 is too large"),
        ({"unk_token": "[GONE]"}, "is not in its vocabulary"),
    ):
        damaged = {**whole, "model": {**whole["model"], **changed}} if changed else changed
        path.write_text(json.dumps(damaged), encoding="utf-8")
        assert sentence in cli.error(*command)
    assert not (tmp_path / "out").exists()
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(UserError, match="expected a tokenizer of at most"):
        load_huggingface(tmp_path)


def test_empty_texts(saved: Any) -> None:
    kind, folder, _ = saved
    foreign = load_huggingface(folder, "cpu")
    if kind == "bert":
        assert list(foreign.attention("").views[0].keys) == ["[CLS]", "[SEP]"]
        return
    with pytest.raises(UserError, match="the text has no tokens"):
        foreign.attention("")
