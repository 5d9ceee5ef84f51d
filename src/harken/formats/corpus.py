"""Read texts from many files, in constant memory.

A corpus is a file, a list of files or a glob. Names decide the format: `.jsonl` (a text per JSON
object), `.parquet` (a text per row), else plain text; text and JSON lines may be compressed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from harken.errors import UserError
from harken.formats.records import parse_object, require_unicode
from harken.formats.text import COMPRESSIONS, read_blocks, read_lines, require_file
from harken.inputs import exists, is_file, open_input
from harken.strict_json import text_of

Documents = Literal["file", "lines"]  # each file is one text, or each line is one
Files = Path | tuple[Path, ...]  # a file, a glob or several of them
# name of a key of [data] -> its value, a column of Parquet files and a key of JSON lines
Columns = Mapping[str, str]
PARQUET_ROWS = 1024  # read at once


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
    column: str = "text"  # of Parquet files, or the key of JSON lines
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
            texts = (text for (text,) in read_rows(path, {"text_column": self.column}))
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


def is_table(path: Path) -> bool:
    """Whether the name is that of JSON lines or Parquet, which `read_rows` reads."""
    return _uncompressed_name(path).endswith((".jsonl", ".parquet"))


def read_rows(path: Path, columns: Columns) -> Iterator[list[str]]:
    """Yield the texts of some columns of each row; null in Parquet is an empty text."""
    is_parquet = _uncompressed_name(path).endswith(".parquet")
    return (_parquet_rows if is_parquet else _json_rows)(path, columns)


def _uncompressed_name(path: Path) -> str:
    name = path.name
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression.suffix)
    return name


def _json_rows(path: Path, columns: Columns) -> Iterator[list[str]]:
    example = ", ".join(f'"{key}": "…"' for key in columns.values())
    fix = f"write {{{example}}} in each line, or name other keys in {_options(columns)}"
    for line in read_lines(path):
        fields, texts = parse_object(line, fix), []
        for key in columns.values():
            if key not in fields:
                raise line.error(f"missing key {key!r} (expected a text)", fix)
            texts.append(text_of(line.where, key, fields[key]))
        require_unicode(line.where, *texts)
        yield [text.replace("\r\n", "\n") for text in texts]


def _parquet_rows(path: Path, columns: Columns) -> Iterator[list[str]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        message = f"{path}: reading Parquet needs the package pyarrow"
        raise UserError(message, fix="install it with `pip install 'harken[parquet]'`") from None
    with open_input(path, "a Parquet file") as file:
        try:
            table = ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
            names: Iterable[str] = table.schema_arrow.names
            for column in columns.values():
                if column not in names:
                    message = f"{path}: no column {column!r} (expected one of {', '.join(names)})"
                    raise UserError(message, fix=f"name the column in {_options(columns)}")
            for batch in table.iter_batches(PARQUET_ROWS, columns=[*columns.values()]):
                cells = (batch.column(column).to_pylist() for column in columns.values())
                for texts in zip(*cells, strict=True):
                    named = zip(columns.values(), texts, strict=True)
                    yield [_cell_text(path, column, text) for column, text in named]
        except (ArrowException, OSError, ValueError) as error:
            message = f"{path}: the file cannot be read ({str(error)[:200]}; expected Parquet)"
            raise UserError(message, fix="write or download the file again") from error


def _cell_text(path: Path, column: str, value: object) -> str:
    return "" if value is None else text_of(str(path), column, value).replace("\r\n", "\n")


def _options(columns: Columns) -> str:
    """Return the keys of [data] that name the columns."""
    return " and ".join(f"data.{key}" for key in columns)
