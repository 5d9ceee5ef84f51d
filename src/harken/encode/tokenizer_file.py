"""Load a `tokenizer.json` whose author is not trusted.

Some files make the `tokenizers` library panic, abort the process or allocate without bound: by a
regular expression with catastrophic backtracking, padding to four billion tokens, or normalizers
that each double the text. So the library receives only the components of `COMPONENTS` and `MODELS`,
with checked fields: those of Harken's vocabularies and of BERT, GPT-2, GPT-NeoX and Llama. Regular
expressions must be in `PATTERNS`. Padding and truncation are dropped.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from harken.errors import UserError
from harken.inputs import read_json, short_path

MAX_BYTES = 2**25  # Llama 3 has 17 million, a vocabulary of a million words about 26 million
MAX_TOKENS = 2**21
MAX_TOKEN_LENGTH = 1024  # characters
MAX_UNIGRAM_LENGTH = 64  # encoding takes time proportional to it
MAX_ADDED = 2**14
MAX_PARTS = 16  # of a sequence of components, or of a template
MAX_NESTING = 2  # of sequences in sequences
MAX_WORD = 1000  # characters of a word that WordPiece splits, in quadratic time

# A word or number, or a single mark, each with one optional space before it; or white space.
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


def _is_token_and_id(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_text(value[0]) and _is_id(value[1])


def _is_template(*sequences: str) -> Check:
    def is_part(part: Any) -> bool:
        match part:
            case {"Sequence": {"id": str(name), "type_id": int(kind)}}:
                return name in sequences and 0 <= kind <= 255
            case {"SpecialToken": {"id": str(name), "type_id": int(kind)}}:
                return _is_text(name) and 0 <= kind <= 255
        return False

    return lambda v: isinstance(v, list) and 0 < len(v) <= MAX_PARTS and all(map(is_part, v))


def _are_special_tokens(value: Any) -> bool:
    def is_entry(name: str, fields: Any) -> bool:
        match fields:
            case {"id": str(identifier), "ids": [*ids], "tokens": [*tokens]}:
                lengths = 0 < len(ids) == len(tokens) <= MAX_PARTS
                ids_and_texts = all(map(_is_id, ids)) and all(map(_is_text, tokens))
                return identifier == name and lengths and ids_and_texts
        return False

    if not isinstance(value, dict) or len(value) > MAX_PARTS:
        return False
    return all(is_entry(name, fields) for name, fields in value.items())


def _flags(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, _is_flag)


BYTE_LEVEL = _flags("add_prefix_space", "trim_offsets", "use_regex")
METASPACE: dict[str, Check] = {
    "replacement": _one_of("▁"),
    "str_rep": _one_of("▁"),
    "prepend_scheme": _one_of("first", "never", "always"),
    **_flags("add_prefix_space", "split"),
}
BEHAVIOR = _one_of("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
BERT_ENDS: dict[str, Check] = {"sep": _is_token_and_id, "cls": _is_token_and_id}

# For each section: the key that lists the components of a Sequence, and the fields of each type of
# component. Other fields are refused.
COMPONENTS: dict[str, tuple[str, dict[str, dict[str, Check]]]] = {
    "normalizer": (
        "normalizers",
        {
            **{name: {} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
            "BertNormalizer": {
                "strip_accents": _one_of(None, False, True),
                **_flags("clean_text", "handle_chinese_chars", "lowercase"),
            },
            "Strip": _flags("strip_left", "strip_right"),
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
            "Digits": _flags("individual_digits"),
            "Punctuation": {"behavior": BEHAVIOR},
            "Split": {"pattern": _is_pattern, "behavior": BEHAVIOR, **_flags("invert")},
        },
    ),
    "post_processor": (
        "processors",
        {
            "ByteLevel": BYTE_LEVEL,
            "BertProcessing": BERT_ENDS,
            "RobertaProcessing": BERT_ENDS | _flags("trim_offsets", "add_prefix_space"),
            "TemplateProcessing": {
                "single": _is_template("A"),
                "pair": _is_template("A", "B"),
                "special_tokens": _are_special_tokens,
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
NO_AFFIX = _one_of(None, "")
MODELS: dict[str, dict[str, Check]] = {
    "BPE": {
        "dropout": _one_of(None),
        "unk_token": lambda value: value is None or _is_text(value),
        "continuing_subword_prefix": NO_AFFIX,  # a merge of tokens without the prefix would panic
        "end_of_word_suffix": NO_AFFIX,
        **_flags("fuse_unk", "byte_fallback", "ignore_merges"),
    },
    "WordPiece": {
        "unk_token": _is_text,
        "continuing_subword_prefix": _is_text,
        "max_input_chars_per_word": lambda value: _is_id(value) and value <= MAX_WORD,
    },
    "WordLevel": {"unk_token": _is_text},
    "Unigram": {"unk_id": _is_id, "byte_fallback": _is_flag},
}
ADDED_FIELDS: dict[str, Check] = {
    "id": _is_id,
    "content": lambda value: _is_text(value) and value != "",
    **_flags("single_word", "lstrip", "rstrip", "normalized", "special"),
}


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer; raise `UserError` for components that are not supported."""
    return build_tokenizer(read_json(path, "a tokenizer", max_bytes=MAX_BYTES), path)


def build_tokenizer(content: Any, path: Path) -> Tokenizer:
    """Build a tokenizer from the JSON of a file; raise `UserError` as `load_tokenizer` does."""
    with tokenizer_errors(f"{short_path(path)}: the tokenizer cannot be loaded"):
        return Tokenizer.from_str(json.dumps(_checked_content(content)))


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
            fix="download tokenizer.json again, or use a model whose tokenizer is supported",
        ) from None


def _checked_content(content: Any) -> dict[str, Any]:
    """Return the checked sections of a `tokenizer.json`, and drop all other sections.

    Raises ValueError for a component or field that is not in the lists above.
    """
    if not isinstance(content, dict):
        raise ValueError("expected a JSON object")
    checked: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None}
    for section in COMPONENTS:
        component = content.get(section)
        checked[section] = None if component is None else _checked_component(section, component)
    checked["added_tokens"] = _checked_added_tokens(content.get("added_tokens") or [])
    checked["model"] = _checked_model(content.get("model"))
    return checked


def _checked_component(section: str, component: Any, nesting: int = 0) -> dict[str, Any]:
    list_key, types = COMPONENTS[section]
    kind = component.get("type") if isinstance(component, dict) else None
    if kind == "Sequence" and component.keys() == {"type", list_key}:
        parts = component[list_key]
        if not isinstance(parts, list) or len(parts) > MAX_PARTS or nesting >= MAX_NESTING:
            limits = f"{MAX_PARTS} components and {MAX_NESTING} levels of sequences"
            raise ValueError(f"{section} must be a sequence of at most {limits}")
        return {
            "type": kind,
            list_key: [_checked_component(section, part, nesting + 1) for part in parts],
        }
    _check_component(section, kind, component, types)
    if kind == "TemplateProcessing":
        # The library panics at a special token that is not listed.
        template = (*component.get("single", ()), *component.get("pair", ()))
        used = {part["SpecialToken"]["id"] for part in template if "SpecialToken" in part}
        if unknown := used - component.get("special_tokens", {}).keys():
            raise ValueError(f"special_tokens does not list {min(unknown)!r} of the template")
    return dict(component)


def _check_component(
    section: str, kind: Any, fields: Mapping[str, Any], types: Mapping[str, Mapping[str, Check]]
) -> None:
    if not isinstance(kind, str) or kind not in types:
        known = ", ".join(sorted(types))
        raise ValueError(f"{section} of type {str(kind)[:60]!r}, expected one of {known}")
    _check_fields(f"{section} {kind}", fields, types[kind])


def _check_fields(owner: str, fields: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    for name, value in fields.items():
        if name != "type" and not (name in checks and checks[name](value)):
            text = json.dumps(value) if not isinstance(value, dict | list) else str(value)
            raise ValueError(f"{owner} with {name[:60]!r} = {text[:60]}, which is not supported")


def _checked_added_tokens(tokens: Any) -> list[dict[str, Any]]:
    if not isinstance(tokens, list) or len(tokens) > MAX_ADDED:
        raise ValueError(f"added_tokens must be a list of at most {MAX_ADDED:,}")
    for token in tokens:
        if not isinstance(token, dict) or not {"id", "content"} <= token.keys():
            raise ValueError("an added token without id and content")
        _check_fields("an added token", token, ADDED_FIELDS)
    return tokens


def _checked_model(model: Any) -> dict[str, Any]:
    if not isinstance(model, dict):
        raise ValueError("it has no model")
    # The first files of BERT and GPT-2 do not name the type.
    by_field = {"merges": "BPE", "max_input_chars_per_word": "WordPiece"}
    named = (kind for field, kind in by_field.items() if field in model)
    kind = model.get("type") or next(named, "WordLevel")
    fields = {name: value for name, value in model.items() if name not in ("vocab", "merges")}
    _check_component("model", kind, fields, MODELS)
    vocabulary: Any = model.get("vocab")
    _check_vocabulary(vocabulary, dict if kind != "Unigram" else list)
    unknown = model.get("unk_token") or None
    is_optional = unknown is None and kind == "BPE"
    if kind != "Unigram" and not is_optional and unknown not in vocabulary:
        raise ValueError(f"its unk_token {str(unknown)[:60]!r} is not in its vocabulary")
    checked = {**fields, "type": kind, "vocab": vocabulary}
    if kind == "BPE":
        merges: Any = model.get("merges")
        is_list = isinstance(merges, list) and len(merges) <= MAX_TOKENS
        if not is_list or not all(map(_is_merge, merges)):
            raise ValueError(f"merges must be a list of at most {MAX_TOKENS:,} pairs of tokens")
        checked |= {"unk_token": unknown, "merges": merges}
    return checked


def _check_vocabulary(vocabulary: Any, kind: type[dict[str, int]] | type[list[Any]]) -> None:
    """Check a dict of tokens with ids, or the list of tokens with scores of a Unigram model."""
    if not isinstance(vocabulary, kind) or not 0 < len(vocabulary) <= MAX_TOKENS:
        raise ValueError(f"a vocabulary must be a {kind.__name__} of 1 to {MAX_TOKENS:,} tokens")
    if isinstance(vocabulary, dict):
        if not all(map(_is_id, vocabulary.values())) or not all(map(_is_text, vocabulary)):
            limits = f"{MAX_TOKEN_LENGTH} characters and ids below {MAX_TOKENS:,}"
            raise ValueError(f"a vocabulary must have tokens of at most {limits}")
        if len(set(vocabulary.values())) < len(vocabulary):
            raise ValueError("two tokens of the vocabulary have the same id")
    elif not all(map(_is_scored_token, vocabulary)):
        limits = f"of at most {MAX_UNIGRAM_LENGTH} characters with finite scores"
        raise ValueError(f"a Unigram vocabulary must be a list of tokens {limits}")


def _is_scored_token(entry: Any) -> bool:
    match entry:
        case [str(text), int() | float() as score]:
            return len(text) <= MAX_UNIGRAM_LENGTH and abs(score) < 1e30  # false for NaN
    return False


def _is_merge(merge: Any) -> bool:
    """Whether a merge is in one of the two notations of the library: "a b" and ["a", "b"]."""
    return isinstance(merge, str) or (isinstance(merge, list) and [*map(type, merge)] == [str, str])
