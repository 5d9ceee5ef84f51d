"""Tokenizers of Harken and of the supported families, and mutations of their files."""

import json
import random
from functools import cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fuzz.mutators import STRINGS, json_text, mutate_bytes, mutate_tree
from harken.encode.subwords import (
    BytePairConfig,
    CharactersConfig,
    UnigramConfig,
    WholeWordsConfig,
    WordsConfig,
)
from harken.encode.tokenizer_file import load_tokenizer, tokenizer_errors
from harken.encode.vocabulary import Vocabulary

CORPUS = ["the bank of a river", "a duck swims", "born in 1815 (in Paris)", "é ü 😀"] * 3
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = (
    "",
    "the duck's 1234 rivers\n\n  (é)",
    "a" * 3000,
    "▁ <s> </s> [CLS] 😀\u0301",
    *STRINGS[:4],
)
OWN = {
    "characters": CharactersConfig(),
    "words": WordsConfig(vocab_size=5),
    "bpe": BytePairConfig(vocab_size=270),
    "unigram": UnigramConfig(vocab_size=270),
    "whole_words": WholeWordsConfig(min_count=1),
}


@cache
def tokenizers() -> dict[str, str]:
    """The JSON of every kind of tokenizer that is supported."""
    found = {name: config.fit(CORPUS).to_json() for name, config in OWN.items()}
    foreign = {"bert": _bert(), "gpt2": _gpt2(), "llama": _llama(), "llama3": _llama3()}
    return found | {name: tokenizer.to_str() for name, tokenizer in foreign.items()}


def _bert() -> Tokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "bank", "riv", "##er", "##s", "a", ","]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.add_special_tokens(words[:4])
    tokenizer.enable_padding(length=11)
    tokenizer.enable_truncation(30)
    return tokenizer


def _gpt2() -> Tokenizer:
    tokenizer = Tokenizer.from_str(BytePairConfig(vocab_size=270).fit(CORPUS).to_json())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def _llama() -> Tokenizer:
    letters = sorted({*"".join(CORPUS), "▁"} - {" "})
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256)), *letters, "th"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, [("t", "h")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    spaces, strip = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse(), strip])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def _llama3() -> Tokenizer:
    tokenizer = _gpt2()
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    template = processors.TemplateProcessing(single="<end> $A", special_tokens=[("<end>", 3)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template])
    return tokenizer


def run_tokenizer(path: Path, rng: random.Random) -> None:
    """Load a damaged tokenizer and, if it is accepted, encode and decode with it."""
    name = rng.choice(sorted(tokenizers()))
    tree = mutate_tree(json.loads(tokenizers()[name]), rng, count=3)
    content = json_text(tree, rng).encode("utf-8", "surrogatepass")
    path.write_bytes(mutate_bytes(content, rng) if rng.random() < 0.1 else content)
    if name in OWN:
        vocabulary = Vocabulary.load(path)
        encoded = vocabulary.encode(TEXTS)
        assert all(0 <= token < len(vocabulary) for tokens in encoded for token in tokens)
        vocabulary.decode([tokens.tolist() for tokens in encoded])
        vocabulary.token_texts(range(len(vocabulary)))
        return
    tokenizer = load_tokenizer(path)
    with tokenizer_errors("it cannot encode"):
        for text in TEXTS:
            tokens = tokenizer.encode(text).ids
            assert len(tokens) < 4 * len(text) + 100
            tokenizer.decode(tokens)
