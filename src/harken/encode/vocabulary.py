"""Text <-> token numbers, whatever the units, on the `tokenizers` library.

Four special tokens come first, with the same numbers in every vocabulary. Every vocabulary but
that of whole words (`whole_words.py`) holds the 256 bytes as a last resort, so that no text is
unencodable and decoding gives the text back. A text is encoded as if a space stood before it: a
word then has the same tokens at the start of an answer as in the middle of a sentence.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from harken.encode.tokenizer_file import load_tokenizer, tokenizer_errors
from harken.errors import Failure, UserError
from harken.inputs import shown

PAD, UNKNOWN, MASK, END = range(4)
CHUNK_TEXTS = 4096
SPECIAL = ("<pad>", "<unknown>", "<mask>", "<end>")


class VocabularySizes(NamedTuple):
    """All that a model must know about a vocabulary."""

    entries: int
    characters: int = 0  # of a vocabulary that also spells words
    tags: int = 0


class Vocabulary:
    """A fitted tokenizer; immutable in use."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # A text that spells out "<mask>" must stay text.
        self._tokenizer.encode_special_tokens = True

    def __repr__(self) -> str:
        return f"Vocabulary(size={len(self)})"

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @property
    def sizes(self) -> VocabularySizes:
        return VocabularySizes(len(self))

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token numbers of each text."""
        encoded: list[np.ndarray] = []
        # In chunks, because a signal is only handled between two calls of the library.
        for start in range(0, len(texts), CHUNK_TEXTS):
            chunk = list(texts[start : start + CHUNK_TEXTS])
            with tokenizer_errors("the text cannot be encoded"):
                encodings = self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
            encoded += [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        return encoded

    def decode(self, sequences: Iterable[Sequence[int]]) -> list[str]:
        """The texts back, special tokens left out."""
        with tokenizer_errors("the tokens cannot be decoded"):
            texts = self._tokenizer.decode_batch([list(one) for one in sequences])
        return [text.removeprefix(" ") for text in texts]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as a person would read it; a space shows as itself."""
        special = dict(enumerate(SPECIAL))
        return [special.get(token) or self._piece(token) for token in tokens]

    def begins_word(self, token: int) -> bool:
        """Whether white space stands before what the token spells."""
        return self._piece(token)[:1].isspace()

    def word_numbers(self, tokens: Sequence[int]) -> list[int]:
        """Of each token of a text, the number of its word; a space is of the word before it."""
        begun = self.decode([tokens[: at + 1] for at in range(len(tokens))])
        counts = [len(one.split()) for one in begun]
        # Half a character may look like a word that the other half takes back.
        whole = np.minimum(np.maximum.accumulate(counts, dtype=np.int64), counts[-1:])
        return [max(int(count) - 1, 0) for count in whole]

    def _piece(self, token: int) -> str:
        with tokenizer_errors(f"token {token} cannot be decoded"):
            text = str(self._tokenizer.decode([token]))
        # Half a character decodes to the replacement mark; its own name says more.
        return str(self._tokenizer.id_to_token(token)) if "�" in text or not text else text

    def to_json(self) -> str:
        return str(self._tokenizer.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Load the tokenizer of a run: special tokens first, numbers without gaps."""
        try:
            tokenizer = load_tokenizer(path)
            numbers = tokenizer.get_vocab(with_added_tokens=True)
            if sorted(numbers.values()) != list(range(len(numbers))):
                raise UserError(f"{shown(path)}: the numbers of its tokens have gaps", fix="")
            if [numbers.get(token) for token in SPECIAL] != list(range(len(SPECIAL))):
                raise UserError(f"{shown(path)}: its first tokens are not {SPECIAL}", fix="")
        except UserError as error:
            raise Failure(
                f"{error.message} (expected the file that the run wrote)",
                fix="restore it from a copy, or train again",
            ) from None
        return cls(tokenizer)
