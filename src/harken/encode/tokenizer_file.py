"""Load a `tokenizer.json` whose author is not trusted.

The `tokenizers` library executes what the file describes. Some descriptions make it panic, abort
the process or allocate without bound: a regular expression with catastrophic backtracking, padding
to four billion tokens, a chain of normalizers each of which doubles the text. So only components
from a closed list are passed on to the library, with checked fields: those of Harken's own
vocabularies and of the supported model families (BERT, GPT-2, GPT-NeoX, Llama). Regular expressions
must be one of `PATTERNS`. Padding and truncation are dropped.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from harken.errors import UserError
from harken.inputs import read_json, shown

MAX_BYTES = 2**25  # Llama 3 has 17 million, a vocabulary of a million words about 26 million
MAX_TOKENS = 2**21
MAX_TOKEN_LENGTH = 1024  # characters
MAX_UNIGRAM_LENGTH = 64  # encoding takes time proportional to it
MAX_ADDED = 2**14
MAX_PARTS = 16  # of a sequence of components, or of a template
MAX_NESTING = 2  # of sequences in sequences
MAX_WORD = 1000  # characters of a word that WordPiece splits, in quadratic time

# A word, a number or a run of other marks, each with one space before it where there is one.
WORDS = " ?[^\\s\\p{P}\\p{S}]+| ?[\\p{P}\\p{S}]|\\s+"
CHARACTER = "[\\s\\S]"
PUNCTUATION = "[\\p{P}\\p{S}]"
PATTERNS = {
    WORDS,
    CHARACTER,
    PUNCTUATION,
    # GPT-2
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # Llama 3
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

Check = Callable[[Any], bool]


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_optional_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TOKEN_LENGTH


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_TOKENS


def _one_of(*choices: object) -> Check:
    return lambda value: any(value == choice and type(value) is type(choice) for choice in choices)


def _is_pattern(value: Any) -> bool:
    match value:
        case {"Regex": str(pattern)}:
            return len(value) == 1 and pattern in PATTERNS
        case {"String": str(literal)}:
            return len(value) == 1 and 1 <= len(literal) <= 8
    return False


def _is_end(value: Any) -> bool:
    """A special token and its number, as `BertProcessing` has them."""
    return isinstance(value, list) and len(value) == 2 and _is_text(value[0]) and _is_id(value[1])


BYTE_LEVEL: dict[str, Check] = {
    "add_prefix_space": _is_flag,
    "trim_offsets": _is_flag,
    "use_regex": _is_flag,
}
METASPACE: dict[str, Check] = {
    "replacement": _one_of("▁"),
    "str_rep": _one_of("▁"),
    "add_prefix_space": _is_flag,
    "prepend_scheme": _one_of("first", "never", "always"),
    "split": _is_flag,
}
BEHAVIOR = _one_of("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
BERT_ENDS: dict[str, Check] = {"sep": _is_end, "cls": _is_end}

# Of each section: the fields of each type of component, and the field that lists those of a
# Sequence. A field that is not listed is refused.
COMPONENTS: dict[str, tuple[str, dict[str, dict[str, Check]]]] = {
    "normalizer": (
        "normalizers",
        {
            **{name: {} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
            "BertNormalizer": {
                "clean_text": _is_flag,
                "handle_chinese_chars": _is_flag,
                "strip_accents": _is_optional_flag,
                "lowercase": _is_flag,
            },
            "Strip": {"strip_left": _is_flag, "strip_right": _is_flag},
            "Prepend": {"prepend": _one_of(" ", "▁")},
            "Replace": {"pattern": _one_of({"String": " "}), "content": _one_of("▁")},
        },
    ),
    "pre_tokenizer": (
        "pretokenizers",
        {
            **{name: {} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")},
            "ByteLevel": BYTE_LEVEL,
            "Metaspace": METASPACE,
            "Digits": {"individual_digits": _is_flag},
            "Punctuation": {"behavior": BEHAVIOR},
            "Split": {"pattern": _is_pattern, "behavior": BEHAVIOR, "invert": _is_flag},
        },
    ),
    "post_processor": (
        "processors",
        {
            "ByteLevel": BYTE_LEVEL,
            "BertProcessing": BERT_ENDS,
            "RobertaProcessing": {
                **BERT_ENDS,
                "trim_offsets": _is_flag,
                "add_prefix_space": _is_flag,
            },
            "TemplateProcessing": {
                "single": lambda value: _is_template(value, "A"),
                "pair": lambda value: _is_template(value, "A", "B"),
                "special_tokens": lambda value: _are_special_tokens(value),
            },
        },
    ),
    "decoder": (
        "decoders",
        {
            **{name: {} for name in ("ByteFallback", "Fuse")},
            "ByteLevel": BYTE_LEVEL,
            "Metaspace": METASPACE,
            "WordPiece": {"prefix": _is_text, "cleanup": _is_flag},
            "Replace": {"pattern": _one_of({"String": "▁"}), "content": _one_of(" ")},
            "Strip": {"content": _one_of(" ", "▁"), "start": _one_of(0, 1), "stop": _one_of(0)},
        },
    ),
}


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer; raise `UserError` for what is not in the closed list of components."""
    content = read_json(path, "a tokenizer", max_bytes=MAX_BYTES)
    with tokenizer_errors(f"{shown(path)}: the tokenizer cannot be loaded"):
        return Tokenizer.from_str(json.dumps(_checked(content)))


@contextmanager
def tokenizer_errors(message: str) -> Iterator[None]:
    """Turn errors of the library, also a panic of its Rust code, into `UserError`."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        # The library raises bare Exception. A panic is a BaseException of a module that cannot be
        # imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(
            f"{message} ({str(error)[:200]})",
            fix="restore tokenizer.json from where the model came from",
        ) from None


def _checked(content: Any) -> dict[str, Any]:
    """Return the parts of a `tokenizer.json` that the library may see; ValueError for others."""
    if not isinstance(content, dict):
        raise ValueError("expected a JSON object")
    checked: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None}
    for section in COMPONENTS:
        component = content.get(section)
        checked[section] = None if component is None else _component(section, component)
    checked["added_tokens"] = _added_tokens(content.get("added_tokens") or [])
    checked["model"] = _model(content.get("model"))
    return checked


def _component(section: str, component: Any, nesting: int = 0) -> dict[str, Any]:
    parts, types = COMPONENTS[section]
    kind = component.get("type") if isinstance(component, dict) else None
    if kind == "Sequence" and component.keys() == {"type", parts}:
        inside = component[parts]
        if not isinstance(inside, list) or len(inside) > MAX_PARTS or nesting >= MAX_NESTING:
            raise ValueError(f"{section} has too many parts")
        return {"type": kind, parts: [_component(section, part, nesting + 1) for part in inside]}
    if not isinstance(kind, str) or kind not in types:
        known = ", ".join(sorted(types))
        raise ValueError(f"{section} of type {str(kind)[:60]!r}, expected one of {known}")
    _check_fields(f"{section} {kind}", component, types[kind])
    if kind == "TemplateProcessing":
        _check_template(component)
    return dict(component)


def _check_fields(where: str, fields: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    for name, value in fields.items():
        if name != "type" and not (name in checks and checks[name](value)):
            text = json.dumps(value) if not isinstance(value, dict | list) else str(value)[:60]
            raise ValueError(f"{where} with {name[:60]!r} = {text[:60]}, which is not supported")


def _is_template(value: Any, *sequences: str) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_PARTS:
        return False
    for piece in value:
        match piece:
            case {"Sequence": {"id": str(name), "type_id": int(kind)}}:
                known = name in sequences
            case {"SpecialToken": {"id": str(name), "type_id": int(kind)}}:
                known = _is_text(name)
            case _:
                return False
        if not known or not 0 <= kind <= 255:
            return False
    return True


def _are_special_tokens(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_PARTS:
        return False
    for name, fields in value.items():
        match fields:
            case {"id": str(own), "ids": [*ids], "tokens": [*tokens]}:
                lengths = 0 < len(ids) == len(tokens) <= MAX_PARTS
                if own != name or not lengths or not all(map(_is_id, ids)):
                    return False
                if not all(map(_is_text, tokens)):
                    return False
            case _:
                return False
    return True


def _check_template(fields: Mapping[str, Any]) -> None:
    """Every special token of a template is listed; the library panics over one that is not."""
    listed = fields.get("special_tokens", {})
    for piece in (*fields.get("single", ()), *fields.get("pair", ())):
        if "SpecialToken" in piece and piece["SpecialToken"]["id"] not in listed:
            raise ValueError(f"a template with the unknown token {piece['SpecialToken']['id']!r}")


ADDED_FIELDS: dict[str, Check] = {
    "id": _is_id,
    "content": lambda value: _is_text(value) and value != "",
    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), _is_flag),
}


def _added_tokens(tokens: Any) -> list[dict[str, Any]]:
    if not isinstance(tokens, list) or len(tokens) > MAX_ADDED:
        raise ValueError(f"added_tokens must be a list of at most {MAX_ADDED:,}")
    for token in tokens:
        if not isinstance(token, dict) or not {"id", "content"} <= token.keys():
            raise ValueError("an added token without id and content")
        _check_fields("an added token", token, ADDED_FIELDS)
    return tokens


def _model(model: Any) -> dict[str, Any]:
    if not isinstance(model, dict):
        raise ValueError("it has no model")
    kind = model.get("type") or _model_type(model)
    if not isinstance(kind, str) or kind not in MODELS:
        raise ValueError(f"model of type {str(kind)[:60]!r}, expected one of {', '.join(MODELS)}")
    vocabulary: Any = model.get("vocab")
    if kind == "Unigram":
        _check_scores(vocabulary)
    else:
        _check_vocabulary(vocabulary)
    fields = {name: value for name, value in model.items() if name not in ("vocab", "merges")}
    _check_fields(f"model {kind}", fields, MODELS[kind])
    unknown = model.get("unk_token") or None
    if kind != "Unigram" and unknown not in vocabulary and (unknown or kind != "BPE"):
        raise ValueError(f"its unk_token {str(unknown)[:60]!r} is not in its vocabulary")
    checked = {**fields, "type": kind, "vocab": vocabulary}
    if kind == "BPE":
        checked["unk_token"] = unknown
        checked["merges"] = _merges(model.get("merges"))
    return checked


def _model_type(model: Mapping[str, Any]) -> str:
    """Tell the type of a model by its fields: the first files of BERT and GPT-2 do not name it."""
    if "merges" in model:
        return "BPE"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _is_no_affix(value: Any) -> bool:
    return value is None or value == ""


MODELS: dict[str, dict[str, Check]] = {
    "BPE": {
        "dropout": lambda value: value is None,
        "unk_token": lambda value: value is None or _is_text(value),
        "continuing_subword_prefix": _is_no_affix,  # a merge without it makes the library panic
        "end_of_word_suffix": _is_no_affix,
        "fuse_unk": _is_flag,
        "byte_fallback": _is_flag,
        "ignore_merges": _is_flag,
    },
    "WordPiece": {
        "unk_token": _is_text,
        "continuing_subword_prefix": _is_text,
        "max_input_chars_per_word": lambda value: _is_id(value) and value <= MAX_WORD,
    },
    "WordLevel": {"unk_token": _is_text},
    "Unigram": {"unk_id": _is_id, "byte_fallback": _is_flag},
}


def _check_vocabulary(vocabulary: Any) -> None:
    if not isinstance(vocabulary, dict) or not 0 < len(vocabulary) <= MAX_TOKENS:
        raise ValueError(f"a vocabulary must have 1 to {MAX_TOKENS:,} tokens")
    if not all(map(_is_id, vocabulary.values())) or not all(map(_is_text, vocabulary)):
        raise ValueError(
            f"a vocabulary must have tokens of at most {MAX_TOKEN_LENGTH} characters and numbers "
            f"below {MAX_TOKENS:,}"
        )
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError("two tokens of the vocabulary have the same number")


def _check_scores(vocabulary: Any) -> None:
    if not isinstance(vocabulary, list) or not 0 < len(vocabulary) <= MAX_TOKENS:
        raise ValueError(f"a vocabulary must have 1 to {MAX_TOKENS:,} tokens")
    for token in vocabulary:
        match token:
            case [str(text), int() | float() as score]:
                finite = math.isfinite(score) and abs(score) < 1e30
                if len(text) > MAX_UNIGRAM_LENGTH or not finite:
                    raise ValueError(f"the token {text[:60]!r} has a score of {score}")
            case _:
                raise ValueError("a Unigram vocabulary must be a list of tokens with scores")


def _merges(merges: Any) -> Sequence[Any]:
    """Pairs of tokens, in either of the two notations of the library."""
    if not isinstance(merges, list) or len(merges) > MAX_TOKENS:
        raise ValueError(f"merges must be a list of at most {MAX_TOKENS:,} pairs")
    for merge in merges:
        match merge:
            case str() | [str(), str()]:
                pass
            case _:
                raise ValueError("merges must be pairs of tokens")
    return merges
