"""The tokenizer of a Whisper folder, and the tokens that its decoder starts with.

    <|startoftranscript|> <|en|> <|transcribe|> <|notimestamps|>  text  <|endoftext|>

An English-only model has neither the language nor the task. The decoder never generates special
tokens, nor the tokens that generation_config.json suppresses, such as brackets around noises; those
that occur in the training transcripts are generated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from harken.encode.pretrained import PretrainedTokenizer
from harken.encode.vocabulary import DecoderTokens, SpecialIds, Vocabulary
from harken.errors import UserError
from harken.inputs import is_file, read_json, short_path

GENERATION_CONFIG = "generation_config.json"
MAX_CONFIG_BYTES = 2**20
MULTILINGUAL_TOKENS = 51_865  # vocabulary size from which Whisper is multilingual, as in its code


@dataclass(frozen=True, kw_only=True, slots=True)
class WhisperTokenizerConfig:
    """The tokenizer of a Whisper folder in `model.start_from`, as it is."""

    kind: Literal["whisper"] = "whisper"
    language: str = "en"  # code of the language of the transcripts; a multilingual model is told it

    def fit(self, texts: Iterable[object]) -> NoReturn:
        raise UserError(
            'encode.tokenizer.kind = "whisper" needs a Whisper folder in model.start_from',
            fix="set model.start_from, or another encode.tokenizer.kind",
        )


def whisper_vocabulary(
    pretrained: PretrainedTokenizer, language: str, texts: Sequence[str]
) -> Vocabulary:
    """Return the vocabulary of a Whisper model; `texts` are the training transcripts."""
    end = pretrained.token_ids.get("eos")
    if end is None:
        end = _token_id(pretrained, "<|endoftext|>")
    names = ["<|startoftranscript|>"]
    settings = _generation_settings(pretrained.path.with_name(GENERATION_CONFIG))
    if settings.get("is_multilingual", pretrained.rows >= MULTILINGUAL_TOKENS):
        names += [f"<|{language}|>", "<|transcribe|>"]
    start = tuple(_token_id(pretrained, name) for name in [*names, "<|notimestamps|>"])
    special = SpecialIds(pad=pretrained.token_ids.get("pad", end), unknown=end, mask=end, end=end)
    pretrained.name_spare_rows()
    vocabulary = Vocabulary(pretrained.tokenizer, special, start[0])
    encoded = vocabulary.encode(texts)
    used = {int(token) for tokens in encoded for token in tokens}
    first = {int(tokens[0]) if len(tokens) else end for tokens in encoded}
    added = pretrained.tokenizer.get_added_tokens_decoder().keys() - {end}
    suppressed = added | _ids(settings, "suppress_tokens", len(vocabulary))
    begin = _ids(settings, "begin_suppress_tokens", len(vocabulary))
    vocabulary.decoder = DecoderTokens(
        start, tuple(sorted(suppressed - used)), tuple(sorted(begin - first))
    )
    return vocabulary


def _generation_settings(path: Path) -> dict[str, Any]:
    """Read generation_config.json; an empty dict if there is none."""
    if not is_file(path):
        return {}
    settings = read_json(path, "a JSON object", max_bytes=MAX_CONFIG_BYTES)
    if not isinstance(settings, dict):
        raise UserError(
            f"{short_path(path)}: expected a JSON object, got {type(settings).__name__}",
            fix=f"restore {path.name} from the source of the model",
        )
    return settings


def _ids(settings: dict[str, Any], key: str, size: int) -> set[int]:
    """Return the token ids in a list; ids that are not tokens have no effect."""
    values = settings.get(key)
    given = values if isinstance(values, list) else []
    return {value for value in given if type(value) is int and 0 <= value < size}


def _token_id(pretrained: PretrainedTokenizer, name: str) -> int:
    number = pretrained.tokenizer.token_to_id(name)
    if number is None:
        raise UserError(
            f"{short_path(pretrained.path)}: it has no token {name!r} (expected the tokenizer of "
            "Whisper)",
            fix="use the tokenizer.json of the model; encode.tokenizer.language is a code, as 'de'",
        )
    return int(number)
