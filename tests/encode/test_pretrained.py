"""Pretrained tokenizers keep their ids, and follow the rules of Harken's vocabularies."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from harken.encode.pretrained import PretrainedTokenizer, PretrainedTokenizerConfig, WordPieces
from harken.encode.vocabulary import SpecialIds, Vocabulary, adds_space
from harken.errors import Failure, UserError

TEXT = "Ada wrote <mask> and\nslept."


def byte_level(folder: Path) -> Path:
    alphabet = {
        byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    tokenizer = Tokenizer(models.BPE({**alphabet, "Ada": 256}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def metaspace(folder: Path) -> Path:
    """A tokenizer as that of Llama, with <s> before a text."""
    letters = dict.fromkeys(f"▁\n{TEXT}")
    ids = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", *letters])}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_space_is_added_only_if_the_tokenizer_does_not(tmp_path: Path) -> None:
    for write, expected in ((byte_level, False), (metaspace, True)):
        tokenizer = PretrainedTokenizer.load(write(tmp_path), 300, {}).tokenizer
        assert adds_space(tokenizer) == expected
        vocabulary = PretrainedTokenizer.load(tmp_path, 300, {}).vocabulary(mask=True)
        (ids,) = vocabulary.encode([TEXT])
        assert ids.tolist() == tokenizer.encode(TEXT if expected else f" {TEXT}").ids[expected:]
        assert vocabulary.decode([ids.tolist()]) == [TEXT]


def test_special_tokens_are_found_or_added(tmp_path: Path) -> None:
    bytes_only = PretrainedTokenizer.load(byte_level(tmp_path), 259, {"eos": 256})
    vocabulary = bytes_only.vocabulary(mask=True)
    assert (len(vocabulary), vocabulary.start) == (259, 256)  # <mask> and an unused row
    assert vocabulary.special == SpecialIds(pad=256, unknown=256, mask=257, end=256)
    size = PretrainedTokenizer.load(metaspace(tmp_path), 300, {}).tokenizer.get_vocab_size()
    llama = PretrainedTokenizer.load(tmp_path, size, {"eos": 2, "pad": 0}).vocabulary(mask=False)
    assert (len(llama), llama.start, llama.special) == (size, 1, SpecialIds(0, 0, 2, 2))
    with pytest.raises(UserError, match="do not fit the model"):
        PretrainedTokenizer.load(tmp_path, size - 1, {})
    with pytest.raises(UserError, match=r"adds 1 special tokens"):
        WordPieces.of(PretrainedTokenizer.load(tmp_path, size, {}))
    with pytest.raises(UserError, match=r"needs a Hugging Face folder in model\.start_from"):
        PretrainedTokenizerConfig().fit([TEXT])


def test_stored_ids_are_checked(tmp_path: Path) -> None:
    vocabulary = PretrainedTokenizer.load(metaspace(tmp_path), 300, {"eos": 2}).vocabulary(
        mask=True
    )
    path = tmp_path / "run.json"
    path.write_text(vocabulary.to_json(), encoding="utf-8")
    loaded = Vocabulary.load(path)
    assert (loaded.special, loaded.start) == (vocabulary.special, vocabulary.start)
    assert loaded.encode([TEXT])[0].tolist() == vocabulary.encode([TEXT])[0].tolist()
    content = json.loads(path.read_text(encoding="utf-8"))
    for change in ({"end": 300}, {"start": -1}, {"mask": "2"}, {"pad": None}):
        stored = {**content, "special_ids": {**content["special_ids"], **change}}
        path.write_text(json.dumps(stored), encoding="utf-8")
        with pytest.raises(Failure, match="special_ids"):
            Vocabulary.load(path)
