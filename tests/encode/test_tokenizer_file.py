"""Tokenizers of the supported families load and encode alike; hostile ones are one message."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from fuzz.tokenizer_files import TEXTS, tokenizers
from harken.encode.tokenizer_file import load_tokenizer
from harken.encode.vocabulary import Vocabulary
from harken.errors import HarkenError, UserError


def saved(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", tokenizers())
def test_supported_tokenizers_encode_as_the_library_does(tmp_path: Path, name: str) -> None:
    content = json.loads(tokenizers()[name])
    content["padding"] = content["truncation"] = None
    theirs = Tokenizer.from_str(json.dumps(content))
    ours = load_tokenizer(saved(tmp_path, json.loads(tokenizers()[name])))
    for text in TEXTS:
        assert ours.encode(text).ids == theirs.encode(text).ids
        assert ours.decode(ours.encode(text).ids) == theirs.decode(theirs.encode(text).ids)


def test_a_model_without_its_type_is_known_by_its_fields(tmp_path: Path) -> None:
    """As in the first files of BERT and GPT-2."""
    for name in ("bert", "gpt2", "whole_words"):
        content = json.loads(tokenizers()[name])
        expected = load_tokenizer(saved(tmp_path, content)).encode(TEXTS[1]).ids
        del content["model"]["type"]
        assert load_tokenizer(saved(tmp_path, content)).encode(TEXTS[1]).ids == expected


def changed(name: str, **sections: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(tokenizers()[name])
    model = sections.pop("model", {})
    return {**content, **sections, "model": {**content["model"], **model}}


def chain(depth: int) -> Any:
    if not depth:
        return {"type": "Lowercase"}
    return {"type": "Sequence", "normalizers": [chain(depth - 1)]}


DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
REGEX = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
PADDING = {
    "strategy": {"Fixed": 4_000_000_000},
    "direction": "Right",
    "pad_to_multiple_of": 9_000_000_000,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[PAD]",
}
SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
UNLISTED = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[GONE]", "type_id": 0}}, SEQUENCE],
    "pair": [SEQUENCE],
    "special_tokens": {},
}
HOSTILE = {
    "catastrophic backtracking": changed("gpt2", pre_tokenizer=REGEX),
    "precompiled table": changed(
        "gpt2", normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAAAAAAA="}
    ),
    "doubling": changed("gpt2", normalizer={"type": "Sequence", "normalizers": [DOUBLE] * 16}),
    "nesting": changed("gpt2", normalizer=chain(5)),
    "many parts": changed(
        "gpt2", normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}
    ),
    "template": changed("bert", post_processor=UNLISTED),
    "merge prefix": changed("gpt2", model={"continuing_subword_prefix": "##########"}),
    "strip": changed(
        "llama", decoder={"type": "Strip", "content": " ", "start": 10**9, "stop": 10**9}
    ),
    "fixed length": changed("gpt2", pre_tokenizer={"type": "FixedLength", "length": 0}),
    "dropout": changed("gpt2", model={"dropout": 0.5}),
    "long words": changed("bert", model={"max_input_chars_per_word": 10**9}),
    "large numbers": changed("bert", model={"vocab": {"[UNK]": 0, "a": 4_000_000_000}}),
    "long token": changed("bert", model={"vocab": {"[UNK]": 0, "a" * 10_000: 1}}),
    "no unknown token": changed("bert", model={"vocab": {"a": 0}}),
    "many added tokens": changed(
        "bert", added_tokens=[{"id": 0, "content": str(n), "special": True} for n in range(20_000)]
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_tokenizers_are_refused(tmp_path: Path, case: str, capfd: Any) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.json: the tokenizer cannot be loaded"):
        load_tokenizer(saved(tmp_path, HOSTILE[case])).encode("a" * 40 + "!")
    assert capfd.readouterr().err == ""  # the library did not panic


def test_padding_and_truncation_are_dropped(tmp_path: Path) -> None:
    path = saved(tmp_path, changed("bert", padding=PADDING))
    assert len(load_tokenizer(path).encode("the bank " * 50).ids) == 102


def test_a_panic_of_the_library_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    from harken.encode import tokenizer_file

    monkeypatch.setattr(tokenizer_file, "_checked_content", lambda content: content)
    with pytest.raises(UserError, match="the tokenizer cannot be loaded"):
        load_tokenizer(saved(tmp_path, HOSTILE["merge prefix"]))
    capfd.readouterr()


def test_the_numbers_of_a_run_s_tokens_have_no_gaps(tmp_path: Path) -> None:
    content = json.loads(tokenizers()["whole_words"])
    vocabulary = content["model"]["vocab"]
    for damaged in (
        {**vocabulary, "river": 500},
        {**vocabulary, "<pad>": vocabulary["<end>"], "<end>": vocabulary["<pad>"]},
    ):
        content["model"]["vocab"] = damaged
        with pytest.raises(HarkenError, match=r"gaps|first tokens"):
            Vocabulary.load(saved(tmp_path, content))
