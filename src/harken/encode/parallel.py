"""Encode a corpus with all cores, in order, in pieces of about a million characters.

The `tokenizers` library encodes a piece with all cores and without the interpreter lock (GIL). Two
threads call it, so that the cores do not wait while Python converts the tokens of a piece. The main
thread reads the pieces.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import TypeVar

from harken.encode.stream import (
    CorpusSample,
    StreamEncoder,
    TextChunk,
    Tokens,
    group_pieces,
    split_pieces,
)
from harken.encode.vocabulary import Vocabulary

Piece = TypeVar("Piece")
Encoded = TypeVar("Encoded")

THREADS = 2
SECONDS_BETWEEN_LINES = 10.0
_print_line: ContextVar[Callable[[str], None]] = ContextVar("print_line", default=lambda line: None)


def encode_in_order(
    encode: Callable[[Piece], Encoded],
    pieces: Iterable[Piece],
    size: Callable[[Piece], int],
    done: int,
    total: int,
) -> Iterator[Encoded]:
    """Yield the encoded pieces in order; a few are encoded ahead.

    `size(piece)` counts the characters of a piece; the first `done` of `total` characters were
    encoded before. The counts are for the progress lines.
    """
    begin = last = time.monotonic()
    done_at_start = done
    with ThreadPoolExecutor(THREADS) as pool:
        running: deque[tuple[int, Future[Encoded]]] = deque()

        def next_result() -> Encoded:
            nonlocal done, last
            characters, future = running.popleft()
            result = future.result()
            done, now = done + characters, time.monotonic()
            if now - last > SECONDS_BETWEEN_LINES:
                last, rate = now, (done - done_at_start) / (now - begin)
                _print_line.get()(
                    f"encode {done / total:.0%}  {rate / 1e6:.2f} million characters/s  "
                    f"{max(total - done, 0) / rate:.0f} s left"
                )
            return result

        try:
            for piece in pieces:
                running.append((size(piece), pool.submit(encode, piece)))
                if len(running) > THREADS:
                    yield next_result()
            while running:
                yield next_result()
        finally:
            for _, future in running:
                future.cancel()


@contextmanager
def encoding_progress(title: str, show: bool | None) -> Iterator[None]:
    """Show progress inside this block; with `show=None`, only if stderr is a terminal."""

    def print_line(line: str) -> None:
        sys.stderr.write(f"{title}: {line}\n")
        sys.stderr.flush()

    if not (sys.stderr.isatty() if show is None else show):
        yield
        return
    token = _print_line.set(print_line)
    try:
        yield
    finally:
        _print_line.reset(token)


def encode_corpus(
    stream: StreamEncoder, splits: Mapping[str, Sequence[str]], skip: int
) -> Iterator[list[Tokens]]:
    """Yield the tokens of each piece of the training texts, without the first `skip` pieces."""
    train = splits["train"]
    assert isinstance(train, CorpusSample), "the training split of lm is a CorpusSample"
    pieces = split_pieces(train.corpus.blocks(), stream.documents)

    def size(piece: Sequence[TextChunk]) -> int:
        return sum(len(chunk.text) for chunk in piece)

    characters_done = sum(map(size, islice(pieces, skip)))
    encoded = encode_in_order(stream.encode_piece, pieces, size, characters_done, train.characters)
    return ([tokens] for tokens in encoded)


def encode_sentences(
    vocabulary: Vocabulary, sentences: Iterator[str], skip: int, done: int, total: int
) -> Iterator[list[Tokens]]:
    """Yield the tokens of the sentences after the first `skip`, several at a time.

    `done` of `total` characters were encoded before these sentences.
    """

    def size(piece: Sequence[str]) -> int:
        return sum(map(len, piece))

    done += sum(map(len, islice(sentences, skip)))
    return encode_in_order(vocabulary.encode, group_pieces(sentences, len), size, done, total)
