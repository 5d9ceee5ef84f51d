"""A text as one stream of tokens, and a continuation of it as text.

    file     <start> text                      the start is a line's end, as if a line stood before
    lines    <end> line <end> line … <end>     a document ends where the next begins

A vocabulary sets a space before what it encodes. Where that space is a token by itself it is taken
away again, so that a stream of characters holds the characters of the text and no others.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Integer

from harken.encode.vocabulary import END, Vocabulary

Documents = Literal["file", "lines"]
"""The whole file is one text, or every line is one."""

Tokens = Integer[np.ndarray, "_count"]

STRETCH = 256  # characters
BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")


def stretches(text: str, size: int = STRETCH) -> list[str]:
    """A text cut every `size` characters or later, at single spaces between words, left out.

    Since a vocabulary sets a space before what it encodes, the pieces have the tokens of the whole,
    and a long text need not be encoded at once.
    """
    pieces, start = [], 0
    while cut := BETWEEN_WORDS.search(text, start + size):
        pieces.append(text[start : cut.start()])
        start = cut.end()
    return [*pieces, text[start:]]


@dataclass(frozen=True, slots=True)
class Stream:
    """How texts become streams: pieces are lines, or the stretches of one file."""

    vocabulary: Vocabulary
    documents: Documents

    @property
    def start(self) -> int:
        """The token that stands before the first."""
        return END if self.documents == "lines" else int(self.vocabulary.encode(["\n"])[0][-1])

    def encode(self, pieces: Sequence[str]) -> list[Tokens]:
        """The tokens of each piece, a line's with its end."""
        encoded = self.vocabulary.encode(pieces)
        if self.documents == "lines":
            return [np.append(self._without_space(one), END) for one in encoded]
        # A stretch follows a space, which is the text's own; only before the first there is none.
        return [self._without_space(encoded[0]), *encoded[1:]]

    def join(self, encoded: Sequence[Tokens]) -> Tokens:
        """One after the other, behind the start."""
        return np.concatenate(([self.start], *encoded))

    def contents(self, pieces: Sequence[str]) -> Float[np.ndarray, "pieces 2"]:
        """(words, characters) of each; the space before a stretch or the end of a line counts."""
        alone = 0 if self.documents == "lines" else 1  # the first stretch follows nothing
        return np.array(
            [(len(one.split()), len(one) + (place >= alone)) for place, one in enumerate(pieces)],
            dtype=np.float64,
        )

    def prompt(self, text: str) -> Tokens:
        """A text behind the start."""
        return np.append(self.start, self._without_space(self.vocabulary.encode([text])[0]))

    def continuations(self, prompt: Tokens, found: Sequence[Sequence[int]]) -> list[str]:
        """What each of these tokens adds to a prompt.

        They are decoded behind it, since a text that is decoded alone loses the space before it.
        """
        behind = [prompt.tolist(), *([*prompt.tolist(), *one] for one in found)]
        before, *texts = self.vocabulary.decode(behind)
        return [text[len(before) :] for text in texts]

    def _without_space(self, tokens: Tokens) -> Tokens:
        alone = len(tokens) > 0 and self.vocabulary.pieces(tokens[:1].tolist()) == [" "]
        return tokens[1:] if alone else tokens
