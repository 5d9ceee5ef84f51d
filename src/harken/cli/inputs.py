"""The inputs of `harken predict`: lines of files and stdin, or file names, some at a time."""

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

TOGETHER = 256  # lines that go through the model in one call
FILES_TOGETHER = 16  # sounds or pictures, which are larger


class Unreadable(NamedTuple):
    """A text file that could not be read to its end, and why."""

    name: str
    error: UserError | OSError


def line_chunks(name: str) -> Iterator[list[str] | Unreadable]:
    """The lines of a file as far as it can be read, and then why it cannot."""
    try:
        yield from _chunks(name)
    except (UserError, OSError) as error:
        yield Unreadable(name, error)


def _chunks(name: str) -> Iterator[list[str]]:
    """The lines of a file, or of stdin, some at a time."""
    from harken.formats.text import open_text, read_every_line

    if name == "-":
        yield from arriving(_stdin())
        return
    with open_text(Path(name)) as file:
        lines = (line.text for line in read_every_line(file, Path(name)))
        while chunk := list(islice(lines, TOGETHER)):
            yield chunk


def file_chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Some files at a time; stdin alone, since it cannot be read a second time."""
    chunk: list[str] = []
    for name in names:
        if chunk and ("-" in (name, *chunk) or len(chunk) == FILES_TOGETHER):
            yield chunk
            chunk = []
        chunk.append(name)
    yield chunk


def count_lines(path: Path) -> int:
    """How many lines a file has; 0 where it cannot be read."""
    from harken.formats.text import open_text

    try:
        with open_text(path) as file:
            return sum(1 for _ in file)
    except (UserError, OSError):  # reported when it is read
        return 0


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # closed, as by `<&-`
        raise UserError("<stdin>: found it closed, wanted lines", fix="name a file, or use a pipe")
    try:
        number = sys.stdin.fileno()
    except io.UnsupportedOperation:
        return sys.stdin.buffer
    # A reader of our own: Python locks `sys.stdin.buffer` when it ends, and would abort where the
    # thread below still waits in it.
    return open(number, "rb", closefd=False)


def arriving(file: BinaryIO) -> Iterator[list[str]]:
    """The next line of a stream as soon as it is there, with those that wait behind it."""
    from harken.formats.text import STDIN, read_every_line, unpacked

    # Two simple queues, since a Ctrl-C inside `Queue(maxsize)` can leave its lock broken.
    lines: SimpleQueue[str | BaseException] = SimpleQueue()
    places: SimpleQueue[None] = SimpleQueue()  # as many as lines may wait

    def read() -> None:
        try:
            for line in read_every_line(unpacked(file, STDIN), STDIN):
                places.get()
                lines.put(line.text)
            lines.put(EOFError())
        except BaseException as error:  # it belongs to whoever waits for the lines
            lines.put(error)

    for _ in range(TOGETHER):
        places.put(None)
    # A daemon, since nothing can end a read that waits for a line.
    Thread(target=read, name="stdin", daemon=True).start()
    while True:
        taken = [lines.get()]
        with suppress(Empty):
            while len(taken) < TOGETHER:
                taken.append(lines.get_nowait())
        for _ in taken:
            places.put(None)
        if arrived := [one for one in taken if isinstance(one, str)]:
            yield arrived
        if isinstance(last := taken[-1], EOFError):
            return
        if isinstance(last, BaseException):
            raise last
