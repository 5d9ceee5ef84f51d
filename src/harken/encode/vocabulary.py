"""Text <-> token ids for all vocabularies, with the `tokenizers` library.

Every fitted vocabulary starts with the same four special tokens. All except whole words
(`WholeWordsConfig`) contain the 256 bytes, so that they encode any text and decode it exactly, and
add a space before a text: a word then has the same tokens at the start and in a sentence.

A pretrained tokenizer (`pretrained.py`) keeps its ids, so its special tokens have other ids.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from harken.encode.tokenizer_file import MAX_BYTES, load_tokenizer, tokenizer_errors
from harken.errors import Failure, UserError
from harken.inputs import read_json, short_path

PAD, UNKNOWN, MASK, END = range(4)
SPECIAL = ("<pad>", "<unknown>", "<mask>", "<end>")
CHUNK_TEXTS = 4096
# keys of tokenizer.json for a pretrained tokenizer
SPECIAL_IDS, DECODER_TOKENS = "special_ids", "decoder_tokens"


class SpecialIds(NamedTuple):
    """The ids of the special tokens."""

    pad: int = PAD
    unknown: int = UNKNOWN
    mask: int = MASK
    end: int = END


class DecoderTokens(NamedTuple):
    """The first inputs of a decoder, and the tokens that it does not generate."""

    start: tuple[int, ...] = (END,)
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()  # only not as the first token


class VocabularySizes(NamedTuple):
    """The sizes that a model is built with."""

    entries: int  # tokens, or words of the task `tag`
    characters: int = 0  # in the spellings of the words
    tags: int = 0  # or labels of the task `classify`
    cls: int = 0  # id of the token before a text, for an encoder of word pieces
    sep: int = 0  # id of the token after a text


class Vocabulary:
    """A fitted or pretrained tokenizer; `start` is the first token of a text, if it has one."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        special: SpecialIds | None = None,
        start: int | None = None,
        decoder: DecoderTokens | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        # "<mask>" in a text is encoded as text.
        self._tokenizer.encode_special_tokens = True
        self.special, self.start = special or SpecialIds(), start
        self.decoder = decoder or DecoderTokens((self.special.end,))
        self._is_pretrained = special is not None
        # Fitted vocabularies add the space before a text themselves.
        self.prefix = " " if self._is_pretrained and not adds_space(tokenizer) else ""

    def __repr__(self) -> str:
        return f"Vocabulary(size={len(self)})"

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @property
    def sizes(self) -> VocabularySizes:
        return VocabularySizes(len(self))

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text."""
        encoded: list[np.ndarray] = []
        # In chunks, because Python handles Ctrl-C only between two calls of the library.
        for start in range(0, len(texts), CHUNK_TEXTS):
            chunk = [self.prefix + text for text in texts[start : start + CHUNK_TEXTS]]
            with tokenizer_errors("the text cannot be encoded"):
                encodings = self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
            encoded += [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        return encoded

    def decode(self, sequences: Iterable[Sequence[int]]) -> list[str]:
        """Return the text of each sequence of tokens, without special tokens."""
        with tokenizer_errors("the tokens cannot be decoded"):
            texts = self._tokenizer.decode_batch([list(sequence) for sequence in sequences])
        return [text.removeprefix(" ") for text in texts]

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Return the text of each token, for display."""
        special = dict(zip(self.special, SPECIAL, strict=True))
        return [special.get(token) or self._token_text(token) for token in tokens]

    def names(self) -> list[str]:
        """Return the name of each token in tokenizer.json."""
        return [str(self._tokenizer.id_to_token(token)) for token in range(len(self))]

    def begins_word(self, token: int) -> bool:
        """Return whether the token begins with white space."""
        return self._token_text(token)[:1].isspace()

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """Return the index of the word of each token; a space belongs to the word before it."""
        prefixes = self.decode([tokens[: end + 1] for end in range(len(tokens))])
        counts = [len(prefix.split()) for prefix in prefixes]
        # The first bytes of a white-space character look like a word until it is complete. Indices
        # must not decrease, nor exceed that of the last word.
        ordered = np.minimum(np.maximum.accumulate(counts, dtype=np.int64), counts[-1:])
        return [max(int(count) - 1, 0) for count in ordered]

    def _token_text(self, token: int) -> str:
        with tokenizer_errors(f"token {token} cannot be decoded"):
            text = str(self._tokenizer.decode([token]))
        # A part of a character decodes to the replacement character; show the token as it is stored
        # instead, such as `<0xE2>`.
        return str(self._tokenizer.id_to_token(token)) if "�" in text or not text else text

    def to_json(self) -> str:
        text = str(self._tokenizer.to_str(pretty=True))
        if not self._is_pretrained:
            return text
        ids = {**self.special._asdict(), "start": self.start}
        added: dict[str, Any] = {SPECIAL_IDS: ids}
        if self.decoder != DecoderTokens((self.special.end,)):
            added[DECODER_TOKENS] = self.decoder._asdict()
        return json.dumps({**json.loads(text), **added}, ensure_ascii=False, indent=1)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Load the tokenizer of a run: ids without gaps and, if it was fitted, special ones first.

        The file of a pretrained tokenizer also has the ids of the special tokens.
        """
        try:
            tokenizer = load_tokenizer(path)
            ids = tokenizer.get_vocab(with_added_tokens=True)
            if sorted(ids.values()) != list(range(len(ids))):
                raise UserError(f"{short_path(path)}: the ids of its tokens have gaps", fix="")
            content = read_json(path, "a tokenizer", max_bytes=MAX_BYTES)
            if SPECIAL_IDS in content:
                *special, start = _special_ids(path, content[SPECIAL_IDS], len(ids))
                decoder = None
                if DECODER_TOKENS in content:
                    decoder = _decoder_tokens(path, content[DECODER_TOKENS], len(ids))
                return cls(tokenizer, SpecialIds(*special), start, decoder)
            if [ids.get(token) for token in SPECIAL] != list(range(len(SPECIAL))):
                raise UserError(f"{short_path(path)}: its first tokens are not {SPECIAL}", fix="")
        except UserError as error:
            raise Failure(
                f"{error.message} (expected the file that the run wrote)",
                fix="restore it from a copy, or train again",
            ) from None
        return cls(tokenizer)


def adds_space(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer encodes a word at the start of a text as it does after a space."""
    with tokenizer_errors("the tokenizer cannot encode a text"):
        ids = tokenizer.encode("a a", add_special_tokens=False).ids
    half = len(ids) // 2
    return bool(ids[:half] == ids[half:])


def _are_ids(values: Sequence[Any], size: int) -> bool:
    return all(type(number) is int and 0 <= number < size for number in values)


def _special_ids(path: Path, stored: Any, size: int) -> list[int]:
    names = [*SpecialIds._fields, "start"]
    ids: list[Any] = [stored.get(name) for name in names] if isinstance(stored, dict) else []
    if not ids or not _are_ids(ids, size):
        raise UserError(f"{short_path(path)}: {SPECIAL_IDS!r} are not ids of {names}", fix="")
    return ids


def _decoder_tokens(path: Path, stored: Any, size: int) -> DecoderTokens:
    names = DecoderTokens._fields
    lists: list[Any] = [stored.get(name) for name in names] if isinstance(stored, dict) else []
    is_read = bool(lists) and all(isinstance(ids, list) for ids in lists)
    if not is_read or not all(_are_ids(ids, size) for ids in lists) or not lists[0]:
        raise UserError(f"{short_path(path)}: {DECODER_TOKENS!r} are not lists of ids", fix="")
    return DecoderTokens(*map(tuple, lists))
