"""Encode a corpus as one stream of tokens, and decode continuations of a prompt.

    file     <line break> text
    lines    <end> line <end> line … <end>

`Vocabulary.encode` adds a space before each text. If that space is a token of its own, it is
removed, so a stream of characters has exactly the characters of the text.
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
    """Split a text at single spaces into chunks of at least `size` characters.

    The spaces are dropped, because `Vocabulary.encode` adds one before each chunk.
    """
    chunks, start = [], 0
    while cut := BETWEEN_WORDS.search(text, start + size):
        chunks.append(text[start : cut.start()])
        start = cut.end()
    return [*chunks, text[start:]]


@dataclass(frozen=True, slots=True)
class StreamEncoder:
    """Encode lines, or the chunks of one file, as a stream of tokens."""

    vocabulary: Vocabulary
    documents: Documents

    @property
    def start(self) -> int:
        """The first token of the stream."""
        return END if self.documents == "lines" else int(self.vocabulary.encode(["\n"])[0][-1])

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text; lines end with `END`."""
        encoded = self.vocabulary.encode(texts)
        if self.documents == "lines":
            return [np.append(self._without_space(tokens), END) for tokens in encoded]
        # The space before the first chunk is not part of the file.
        return [self._without_space(encoded[0]), *encoded[1:]]

    def join(self, encoded: Sequence[Tokens]) -> Tokens:
        return np.concatenate(([self.start], *encoded))

    def text_lengths(self, texts: Sequence[str]) -> Float[np.ndarray, "texts 2"]:
        """Return the length of each text in words and in characters, including separators."""
        first = 0 if self.documents == "lines" else 1  # no space precedes the first chunk
        counts = [(len(t.split()), len(t) + (index >= first)) for index, t in enumerate(texts)]
        return np.array(counts, dtype=np.float64)

    def encode_prompt(self, text: str) -> Tokens:
        return np.append(self.start, self._without_space(self.vocabulary.encode([text])[0]))

    def continuations(self, prompt: Tokens, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text that each sequence of tokens adds to a prompt.

        The prompt is decoded too, because decoding removes a space at the start.
        """
        whole = [prompt.tolist(), *([*prompt.tolist(), *tokens] for tokens in sequences)]
        prompt_text, *texts = self.vocabulary.decode(whole)
        return [text[len(prompt_text) :] for text in texts]

    def _without_space(self, tokens: Tokens) -> Tokens:
        is_space = len(tokens) > 0 and self.vocabulary.token_texts(tokens[:1].tolist()) == [" "]
        return tokens[1:] if is_space else tokens
