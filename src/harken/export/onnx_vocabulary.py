"""Vocabularies as plain JSON, and the templates that encode texts with them in `predict.py`.

A token is stored as a string with one character for each of its bytes (Latin-1), and a special
token as null. So all tokenizers of Harken decode in the same way: they concatenate the bytes.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from harken.encode.subwords import BYTES
from harken.encode.tokenizer_file import CHARACTER, WORDS
from harken.encode.vocabulary import SPECIAL, Vocabulary

FIRST_CHARACTER = len(SPECIAL) + len(BYTES)  # bytes come before it in a vocabulary with fallback
# The patterns of `tokenizer_file.py` over classes of characters: Z is white space, p punctuation or
# a symbol, w another character, L a letter, N a number. Literals stand for themselves.
WORD_CLASSES = '"p" if category[0] in "PS" else "w"'
WORD_PATTERN = " ?w+| ?p|[ Z]+"
GPT2_LITERALS = " 'strevmld"
GPT2_CLASSES = 'category[0] if category[0] in "LN" else "o"'
GPT2_PATTERN = "'(?:[stmd]|re|ve|ll)| ?[Lstrevmld]+| ?N+| ?[o']+|[ Z]+(?![^ Z])|[ Z]+"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainVocabulary:
    """The content of vocabulary.json, and the templates that read it with their options."""

    content: dict[str, Any]
    parts: tuple[str, ...]
    options: dict[str, object] = field(default_factory=dict)
    modules: tuple[str, ...] = ()


def plain_vocabulary(vocabulary: Vocabulary) -> PlainVocabulary:
    """Return the vocabulary of a text model; one that cannot be written so reads token ids."""
    stored = json.loads(vocabulary.to_json())
    model, splitter = stored["model"], stored["pre_tokenizer"] or {}
    pattern = splitter.get("pattern", {}).get("Regex")
    if pattern in (WORDS, CHARACTER) and model.get("ignore_merges") and not model["merges"]:
        return PlainVocabulary(
            content={"tokens": fallback_tokens(model["vocab"])},
            parts=("bytes", "decode_fallback", "encode_fallback"),
            options={
                "literals": " ",
                "classes": WORD_CLASSES,
                "pattern": WORD_PATTERN if pattern == WORDS else ".",
                "first_character": FIRST_CHARACTER,
            },
            modules=("itertools", "re", "unicodedata"),
        )
    if not is_byte_level(stored):
        return PlainVocabulary(content={"tokens": None}, parts=("ids",))
    special = {token["id"] for token in stored["added_tokens"]}
    is_unigram = model["type"] == "Unigram"
    texts = (
        [text for text, _ in model["vocab"]]
        if is_unigram
        else sorted(model["vocab"], key=lambda token: model["vocab"][token])
    )
    count = len(vocabulary)
    texts += [""] * (count - len(texts))  # tokens that were added to a pretrained tokenizer
    to_byte = byte_of_character()
    content: dict[str, Any] = {
        "tokens": [
            None if index in special else "".join(to_byte[character] for character in text)
            for index, text in enumerate(texts)
        ]
    }
    if is_unigram:
        content["scores"] = [score for _, score in model["vocab"]]
    else:
        pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
        content["merges"] = [
            ["".join(to_byte[character] for character in part) for part in pair] for pair in pairs
        ]
    return PlainVocabulary(
        content=content,
        parts=("bytes", "decode_bytes", "encode_unigram" if is_unigram else "encode_bpe"),
        options={
            "literals": GPT2_LITERALS,
            "classes": GPT2_CLASSES,
            "pattern": GPT2_PATTERN,
            "prefix": repr(vocabulary.prefix + (" " if stored["normalizer"] else "")),
        },
        modules=("re", "unicodedata"),
    )


def is_byte_level(stored: dict[str, Any]) -> bool:
    """Whether a tokenizer is byte-level BPE or a byte-level unigram model of Harken."""
    return (
        stored["model"]["type"] in ("BPE", "Unigram")
        and not stored["model"].get("ignore_merges")
        and stored["normalizer"] in (None, {"type": "Prepend", "prepend": " "})
        and stored["pre_tokenizer"]["type"] == "ByteLevel"
        and all(token["special"] for token in stored["added_tokens"])
        and stored["pre_tokenizer"]["use_regex"]
        and not stored["pre_tokenizer"]["add_prefix_space"]
    )


def fallback_tokens(ids: dict[str, int]) -> list[str | None]:
    """Return the tokens of a vocabulary with bytes for unknown characters."""
    tokens: list[str | None] = [None] * len(ids)
    for text, index in ids.items():
        if index >= FIRST_CHARACTER:
            tokens[index] = text.encode("utf-8").decode("latin-1")
        elif index >= len(SPECIAL):
            tokens[index] = chr(index - len(SPECIAL))
    return tokens


def byte_of_character() -> dict[str, str]:
    """Return the byte that each character of a byte-level token stands for, as a character.

    Visible characters of Latin-1 stand for themselves, and U+0100, U+0101, … for the other bytes.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0x100)} - {0xAD}
    others = [value for value in range(256) if value not in visible]
    characters = {chr(value): chr(value) for value in visible}
    return characters | {chr(256 + index): chr(value) for index, value in enumerate(others)}
