"""Batches of inputs for `harken predict`: lines of files and stdin, or file names."""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import BinaryIO, NamedTuple

from harken.errors import UserError
from harken.formats.text import STDIN, decompressed, iter_lines, open_text, read_lines

BATCH_SIZE = 256  # lines per call of `Run.predict`
FILE_BATCH_SIZE = 16  # sounds or images per call of `Run.predict`


class UnreadableFile(NamedTuple):
    """A text file that could not be read, and the error."""

    name: str
    error: UserError | OSError


def line_chunks(name: str) -> Iterator[list[str] | UnreadableFile]:
    """Yield batches of lines of a file or stdin, or the error if reading fails."""
    try:
        if name == "-":
            yield from stream_lines(_stdin())
            return
        lines = (line.text for line in read_lines(Path(name), keep_blank=True))
        while chunk := list(islice(lines, BATCH_SIZE)):
            yield chunk
    except (UserError, OSError) as error:
        yield UnreadableFile(name, error)


def file_chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield batches of file names.

    `-` is a batch of its own: a batch that fails is read again in halves, which stdin cannot be.
    """
    chunk: list[str] = []
    for name in names:
        if chunk and ("-" in (name, *chunk) or len(chunk) == FILE_BATCH_SIZE):
            yield chunk
            chunk = []
        chunk.append(name)
    yield chunk


def count_lines(path: Path) -> int:
    """Return the number of lines, 0 if the file cannot be read."""
    # `line_chunks` reports the error when it reads the file.
    with suppress(UserError, OSError), open_text(path) as file:
        return sum(1 for _ in file)
    return 0


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # closed, as by `<&-`
        raise UserError("<stdin>: expected lines, got a closed stream", fix="name a file")
    try:
        number = sys.stdin.fileno()
    except io.UnsupportedOperation:
        return sys.stdin.buffer
    # Not `sys.stdin.buffer`: Python locks it at exit, and aborts if the thread of `stream_lines`
    # is still reading.
    return open(number, "rb", closefd=False)


def stream_lines(file: BinaryIO) -> Iterator[list[str]]:
    """Yield each line of a stream as soon as it arrives, with all others that have arrived."""
    # Two simple queues, because Ctrl-C inside `Queue(maxsize)` can leave its lock broken.
    lines: SimpleQueue[str | BaseException] = SimpleQueue()
    slots: SimpleQueue[None] = SimpleQueue()  # one item per line that `read` may still put

    def read() -> None:
        try:
            for line in iter_lines(decompressed(file, STDIN), STDIN):
                slots.get()
                lines.put(line.text)
            lines.put(EOFError())
        except BaseException as error:  # raised again by the consumer
            lines.put(error)

    for _ in range(BATCH_SIZE):
        slots.put(None)
    # A daemon thread, because a blocked read cannot be interrupted.
    Thread(target=read, name="stdin", daemon=True).start()
    while True:
        items = [lines.get()]
        with suppress(Empty):
            while len(items) < BATCH_SIZE:
                items.append(lines.get_nowait())
        for _ in items:
            slots.put(None)
        if chunk := [item for item in items if isinstance(item, str)]:
            yield chunk
        if isinstance(last := items[-1], EOFError):
            return
        if isinstance(last, BaseException):
            raise last
