"""Encode a corpus as one stream of tokens, and decode continuations of a prompt.

    file     <line break> text <line break> text …
    lines    <end> line <end> line … <end>

`Vocabulary.encode` adds a space before each text. If that space is a token of its own, it is
removed, so a stream of characters has exactly the characters of the text.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Integer

from harken.encode.vocabulary import Vocabulary
from harken.formats.corpus import Documents, TextBlock, TextCorpus
from harken.formats.text import require_readable

Tokens = Integer[np.ndarray, "_count"]
Text = TypeVar("Text")

CHUNK_SIZE = 256  # characters
MAX_CHUNK = 2**20  # characters; a longer text without single spaces is cut
PIECE_SIZE = 2**20  # characters that are encoded and stored together
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


class TextChunk(NamedTuple):
    """Text that is encoded at once, and what separates it from the text before it."""

    # "start" of a text; "space", which the split dropped; "" after a cut without a space
    separator: Literal["start", "space", ""]
    text: str


def split_blocks(blocks: Iterable[TextBlock]) -> Iterator[TextChunk]:
    """Split each text as `split_chunks` does, without holding it in memory.

    `MAX_CHUNK` characters without a single space are cut before their last line break, or else at
    their end. After such a cut, a vocabulary whose tokens include the space before a word adds one.
    """
    separator: Literal["start", "space", ""] = "start"
    pending = ""
    for block in blocks:
        if block.is_first and pending:
            yield TextChunk(separator, pending)
            separator, pending = "start", ""
        pending, start = pending + block.text, 0
        while cut := BETWEEN_WORDS.search(pending, start + CHUNK_SIZE):
            yield TextChunk(separator, pending[start : cut.start()])
            separator, start = "space", cut.end()
        pending = pending[start:]
        if len(pending) > MAX_CHUNK:
            end = max(pending.rfind("\n"), 0) or len(pending)
            yield TextChunk(separator, pending[:end])
            separator, pending = "", pending[end:]
    if pending:
        yield TextChunk(separator, pending)


def split_pieces(blocks: Iterable[TextBlock], documents: Documents) -> Iterator[list[TextChunk]]:
    """Yield the chunks of a corpus in pieces of about `PIECE_SIZE` characters."""
    if documents == "lines":
        lines = (TextChunk("start", block.text) for block in blocks)
        end = TextChunk("start", "")  # the end token of the last line
        return group_pieces(chain(lines, [end]), lambda chunk: len(chunk.text))
    return group_pieces(split_blocks(blocks), lambda chunk: len(chunk.text))


def group_pieces(texts: Iterable[Text], size: Callable[[Text], int]) -> Iterator[list[Text]]:
    """Yield lists of texts whose sizes add up to about `PIECE_SIZE`."""
    piece: list[Text] = []
    total = 0
    for text in texts:
        piece.append(text)
        total += size(text)
        if total >= PIECE_SIZE:
            yield piece
            piece, total = [], 0
    if piece:
        yield piece


class CorpusSample(list[str]):
    """An evenly spread sample of the chunks or lines of the training texts; `corpus` reads all."""

    def __init__(self, corpus: TextCorpus, characters: int, max_characters: int) -> None:
        super().__init__(texts_of(corpus.sample(max_characters / characters), corpus.documents))
        self.corpus, self.characters = corpus, characters


def texts_of(blocks: Iterable[TextBlock], documents: Documents) -> Iterator[str]:
    """Yield the lines, or the chunks of files."""
    if documents == "lines":
        return (block.text for block in blocks)
    return (chunk.text for chunk in split_blocks(blocks))


def read_texts_whole(corpus: TextCorpus) -> list[str]:
    """Read lines, or the chunks of files, into memory; texts are joined by line breaks."""
    blocks, size = list[TextBlock](), 0
    for block in corpus.blocks():
        blocks.append(block)
        size += len(block.text)
        require_readable(size, corpus.files[-1])
    if corpus.documents == "lines":
        return [block.text for block in blocks]
    text = "".join("\n" * block.is_first + block.text for block in blocks)
    return split_chunks(text.removeprefix("\n"))


@dataclass(frozen=True, slots=True)
class StreamEncoder:
    """Encode lines, or the chunks of files, as a stream of tokens."""

    vocabulary: Vocabulary
    documents: Documents

    @property
    def start(self) -> int:
        """The first token of the stream."""
        if self.vocabulary.start is not None:
            return self.vocabulary.start
        return self.end if self.documents == "lines" else int(self.vocabulary.encode(["\n"])[0][-1])

    @property
    def end(self) -> int:
        """The token after each line."""
        return self.vocabulary.special.end

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text; lines end with `end`."""
        encoded = self.vocabulary.encode(texts)
        if self.documents == "lines":
            return [np.append(self._without_space(tokens), self.end) for tokens in encoded]
        # The space before the first chunk is not part of the file.
        return [self._without_space(encoded[0]), *encoded[1:]]

    def encode_piece(self, chunks: Sequence[TextChunk]) -> Tokens:
        """Return the tokens of consecutive chunks, with the start token before each text."""
        encoded, start = self.vocabulary.encode([chunk.text for chunk in chunks]), self.start
        parts: list[Tokens] = []
        for chunk, tokens in zip(chunks, encoded, strict=True):
            if chunk.separator == "start":
                parts.append(np.array([start]))
            parts.append(tokens if chunk.separator == "space" else self._without_space(tokens))
        return np.concatenate(parts)

    def join(self, encoded: Sequence[Tokens]) -> Tokens:
        return np.concatenate(([self.start], *encoded))

    def text_lengths(self, texts: Sequence[str]) -> Float[np.ndarray, "texts 2"]:
        """Return the length of each text in words and in characters, including separators."""
        first = 0 if self.documents == "lines" else 1  # no space precedes the first chunk
        counts = [(len(t.split()), len(t) + (index >= first)) for index, t in enumerate(texts)]
        return np.array(counts, dtype=np.float64)

    def encode_prompt(self, text: str) -> Tokens:
        return np.append(self.start, self._without_space(self.vocabulary.encode([text])[0]))

    def encode_continuation(self, prompt: str, output: str) -> tuple[Tokens, int]:
        """Return the tokens of a prompt with its continuation, and where the latter begins.

        It begins after the longest common start with the tokens of the prompt alone.
        """
        alone, whole = self.encode_prompt(prompt), self.encode_prompt(prompt + output)
        length = min(len(alone), len(whole) - 1)
        different = np.flatnonzero(alone[:length] != whole[:length])
        return whole, int(different[0]) if len(different) else length

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
