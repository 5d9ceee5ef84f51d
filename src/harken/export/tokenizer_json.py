"""Write the tokenizer of a run so that `transformers.AutoTokenizer` returns the same ids.

Without special tokens, `AutoTokenizer` encodes a text as `Vocabulary.encode` does. With special
tokens, which is its default, it adds those that the task adds to an input.
"""

import json
from pathlib import Path
from typing import Any

from harken.encode.pretrained import WordPieces
from harken.encode.tokenizer_file import build_tokenizer
from harken.encode.vocabulary import SPECIAL_IDS, Vocabulary, adds_space
from harken.files import write_text

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def write_tokenizer(
    folder: Path,
    vocabulary: Vocabulary,
    *,
    before: list[int],
    after: list[int],
    max_length: int,
    pad_left: bool = False,
    without_space: bool = False,
) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    `before` and `after` are the special tokens around an input. `without_space` leaves out the
    space that Harken adds before a text.
    """
    content = json.loads(vocabulary.to_json())
    is_pretrained = content.pop(SPECIAL_IDS, None) is not None
    prepend = {"type": "Prepend", "prepend": " "}
    if is_pretrained and not adds_space(build_tokenizer(content, folder / TOKENIZER)):
        normalizers = [prepend, *([content["normalizer"]] if content["normalizer"] else [])]
        content["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    elif without_space and content["normalizer"] == prepend:
        content["normalizer"] = None
    if not is_pretrained and content["decoder"] is not None:
        content["decoder"] = _without_first_space(content["decoder"])
    names = _names(content)
    content["post_processor"] = _template(before, after, names)
    special = vocabulary.special
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": names[special.pad],
        "unk_token": names[special.unknown],
        "mask_token": names[special.mask],
        "eos_token": names[special.end],
        "bos_token": names[special.end if vocabulary.start is None else vocabulary.start],
        "split_special_tokens": True,  # Harken encodes "<mask>" in a text as text
        "clean_up_tokenization_spaces": False,
        "padding_side": "left" if pad_left else "right",
        "model_max_length": max_length,
    }
    write_text(folder / TOKENIZER, json.dumps(content, ensure_ascii=False, indent=1))
    write_text(folder / TOKENIZER_CONFIG, json.dumps(config, ensure_ascii=False, indent=1))


def write_pieces(folder: Path, pieces: WordPieces, max_length: int) -> None:
    """Write the tokenizer of a tagger; it encodes words, with `is_split_into_words`."""
    content = pieces.to_plain()["tokenizer"]
    names = _names(content)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "cls_token": names[pieces.cls],
        "sep_token": names[pieces.sep],
        "pad_token": names[pieces.sep],
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }
    write_text(folder / TOKENIZER, json.dumps(content, ensure_ascii=False, indent=1))
    write_text(folder / TOKENIZER_CONFIG, json.dumps(config, ensure_ascii=False, indent=1))


def _names(content: dict[str, Any]) -> dict[int, str]:
    """Return the token of each id."""
    stored = content["model"]["vocab"]
    is_list = isinstance(stored, list)  # of a unigram model
    ids = (
        enumerate(token for token, _ in stored) if is_list else ((i, t) for t, i in stored.items())
    )
    return dict(ids) | {token["id"]: token["content"] for token in content["added_tokens"]}


def _template(before: list[int], after: list[int], names: dict[int, str]) -> dict[str, Any]:
    def special(token: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": names[token], "type_id": 0}}

    def sequence(name: str) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": 0}}

    first, last = list(map(special, before)), list(map(special, after))
    listed = {
        names[token]: {"id": names[token], "ids": [token], "tokens": [names[token]]}
        for token in (*before, *after)
    }
    return {
        "type": "TemplateProcessing",
        "single": [*first, sequence("A"), *last],
        "pair": [*first, sequence("A"), *last, sequence("B"), *last],
        "special_tokens": listed,
    }


def _without_first_space(decoder: dict[str, Any]) -> dict[str, Any]:
    """Return a decoder that removes the space that was added before the text."""
    is_sequence = decoder["type"] == "Sequence"
    parts = decoder["decoders"] if is_sequence else [decoder]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {"type": "Sequence", "decoders": [*parts, strip]}
