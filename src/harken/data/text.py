"""Text files, line by line, strictly UTF-8, in constant memory.

A byte that is not UTF-8 is an error with its line, never a replacement character: a silent one
would end up in a vocabulary.
"""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from harken.errors import UserError


class Line(NamedTuple):
    """A line without its end, and where it stands."""

    path: Path
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"


def require_file(path: Path) -> None:
    """Say which file was meant where one is missing."""
    if path.is_dir():
        raise UserError(f"{path}: found a folder, wanted a file", fix="name a file inside it")
    if not path.is_file():
        try:
            others = [other.name for other in path.parent.iterdir() if other.is_file()]
        except OSError:
            others = []
        near = difflib.get_close_matches(path.name, others, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "check the name and the folder"
        raise UserError(f"{path}: found no such file, wanted a text file", fix=hint)


def read_lines(path: Path) -> Iterator[Line]:
    """Every line that is not blank; a file of none is an error."""
    require_file(path)
    empty = True
    with path.open("rb") as file:
        for line in read_every_line(file, path):
            if line.text.strip():
                empty = False
                yield line
    if empty:
        raise UserError(
            f"{path}: found an empty file, wanted at least one line of text",
            fix="check that the file was written or downloaded whole",
        )


def read_every_line(file: BinaryIO, path: Path) -> Iterator[Line]:
    """Blank lines too, of a file or a stream; `path` is only its name."""
    for number, raw in enumerate(file, start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: found byte 0x{error.object[error.start]:02x} at place "
                f"{error.start + 1} of the line, wanted UTF-8 text",
                fix="convert the file to UTF-8, for example with `iconv -t UTF-8`",
            ) from None
        yield Line(path, number, text.rstrip("\r\n"))
