"""A text as one stream of tokens, and the text of a continuation.

    file     <start> text                      the start is a line break
    lines    <end> line <end> line … <end>     a document ends where the next begins

A vocabulary adds a space before a text. If that space is a token of its own, it is removed, so a
stream of characters has exactly the characters of the text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Integer

from harken.encode.vocabulary import END, Vocabulary

Documents = Literal["file", "lines"]  # the whole file is one text, or each line is one

Tokens = Integer[np.ndarray, "_count"]

CHUNK_SIZE = 256  # characters
BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")


def split_chunks(text: str, size: int = CHUNK_SIZE) -> list[str]:
    """Split a text after at least `size` characters, at single spaces, which are left out.

    Since a vocabulary adds a space before a text, the chunks have the tokens of the whole text.
    """
    chunks, start = [], 0
    while cut := BETWEEN_WORDS.search(text, start + size):
        chunks.append(text[start : cut.start()])
        start = cut.end()
    return [*chunks, text[start:]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Encoder of streams; the texts are lines, or the chunks of one file."""

    vocabulary: Vocabulary
    documents: Documents

    @property
    def start(self) -> int:
        """The token before the first."""
        return END if self.documents == "lines" else int(self.vocabulary.encode(["\n"])[0][-1])

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each chunk, or of each line with its end."""
        encoded = self.vocabulary.encode(texts)
        if self.documents == "lines":
            return [np.append(self._without_space(tokens), END) for tokens in encoded]
        # Between chunks there is a space of the text; before the first there is none.
        return [self._without_space(encoded[0]), *encoded[1:]]

    def join(self, encoded: Sequence[Tokens]) -> Tokens:
        return np.concatenate(([self.start], *encoded))

    def contents(self, texts: Sequence[str]) -> Float[np.ndarray, "texts 2"]:
        """Return (words, characters) of each text, with the space or line break next to it."""
        first = 0 if self.documents == "lines" else 1  # no space precedes the first chunk
        counts = [(len(t.split()), len(t) + (index >= first)) for index, t in enumerate(texts)]
        return np.array(counts, dtype=np.float64)

    def prompt(self, text: str) -> Tokens:
        """Return the start and the tokens of a text."""
        return np.append(self.start, self._without_space(self.vocabulary.encode([text])[0]))

    def continuations(self, prompt: Tokens, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text that each sequence of tokens adds to a prompt.

        Both are decoded together, since a text decoded alone loses the space before it.
        """
        whole = [prompt.tolist(), *([*prompt.tolist(), *tokens] for tokens in sequences)]
        before, *texts = self.vocabulary.decode(whole)
        return [text[len(before) :] for text in texts]

    def _without_space(self, tokens: Tokens) -> Tokens:
        is_space = len(tokens) > 0 and self.vocabulary.token_texts(tokens[:1].tolist()) == [" "]
        return tokens[1:] if is_space else tokens
