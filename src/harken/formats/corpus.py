"""Read texts from many files, in constant memory.

A corpus is one path or several, which may be globs. Tables (`table.py`) have a text per row; other
files are plain text, which may be compressed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from harken.errors import UserError
from harken.formats.table import is_table, read_table
from harken.formats.text import read_blocks, read_lines, require_file
from harken.inputs import exists, is_file

Documents = Literal["file", "lines"]  # each file is one text, or each line is one
Files = Path | tuple[Path, ...]  # paths, which may be globs


class TextBlock(NamedTuple):
    """A part of a text, and whether it is the first one."""

    text: str
    is_first: bool


class CorpusSize(NamedTuple):
    """Numbers of characters and of texts."""

    characters: int
    texts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TextCorpus:
    """The texts of some files, or a range of them.

    The range counts characters if each file is a text, and texts if each line is one.
    """

    files: tuple[Path, ...]
    documents: Documents
    column: str = "text"  # of tables
    start: int = 0
    stop: int | None = None

    def blocks(self) -> Iterator[TextBlock]:
        """Yield the texts in order, without blank ones; a line is one block."""
        position = 0
        for path in self.files:
            for block in self._file_blocks(path):
                if self.stop is not None and position >= self.stop:
                    return
                length = len(block.text) if self.documents == "file" else 1
                first = max(self.start - position, 0)
                last = length if self.stop is None else min(self.stop - position, length)
                if first < last:
                    text = block.text[first:last] if self.documents == "file" else block.text
                    yield TextBlock(text, block.is_first or position <= self.start)
                position += length

    def size(self) -> CorpusSize:
        """Count characters and texts."""
        characters = texts = 0
        for block in self.blocks():
            characters += len(block.text)
            texts += block.is_first
        return CorpusSize(characters, texts)

    def sample(self, share: float) -> Iterator[TextBlock]:
        """Yield blocks with this share of the characters, spread evenly; all if it is 1 or more."""
        seen = taken = 0
        skipped = False
        for block in self.blocks():
            if share >= 1 or taken <= share * seen:
                yield TextBlock(block.text, block.is_first or skipped)
                taken += len(block.text)
                skipped = False
            else:
                skipped = True
            seen += len(block.text)

    def between(self, start: int, stop: int | None) -> "TextCorpus":
        """Return a range of the corpus."""
        return replace(self, start=start, stop=stop)

    def _file_blocks(self, path: Path) -> Iterator[TextBlock]:
        if is_table(path):
            rows = read_table(path, {"text": self.column}, keep_empty=True)
            texts = (row.texts["text"] for row in rows)
        elif self.documents == "lines":
            texts = (line.text for line in read_lines(path))
        else:
            yield from (TextBlock(text, index == 0) for index, text in enumerate(read_blocks(path)))
            return
        yield from (TextBlock(text, True) for text in texts if text.strip())


def find_files(patterns: Files) -> tuple[Path, ...]:
    """Return the files of a list of names and globs; a glob without a match is an error."""
    found: list[Path] = []
    for pattern in patterns if isinstance(patterns, tuple) else (patterns,):
        matches = matching_files(pattern)
        if not matches and is_glob(pattern):
            message = f"{pattern}: no file matches this glob (expected at least one)"
            raise UserError(message, fix="check the folder and the pattern")
        if not matches:
            require_file(pattern)
        found += matches or [pattern]
    if not found:
        message = "the list of files is empty (expected at least one)"
        raise UserError(message, fix="name a file or a glob")
    return tuple(found)


def matching_files(pattern: Path) -> list[Path]:
    """Return the files that a name or a glob stands for, sorted; empty if there are none."""
    if not is_glob(pattern):
        return [pattern] if is_file(pattern) else []
    relative = str(pattern.relative_to(pattern.anchor))
    return sorted(path for path in Path(pattern.anchor).glob(relative) if is_file(path))


def is_glob(pattern: Path) -> bool:
    """Whether the path has wildcards and is not itself the name of a file."""
    return any(character in str(pattern) for character in "*?[") and not exists(pattern)
