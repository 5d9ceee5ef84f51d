"""Read the rows of tables: CSV, TSV, JSON lines and Parquet, in constant memory.

    reviews.csv      a header; fields separated by `,`, `;` or tabs, in quotes if they contain these
    reviews.jsonl    {"review": "Too sweet.", "stars": 2}
    reviews.parquet  named columns
    questions.tsv    Where was Ada King born?<TAB>London

The name decides the format; other names are read as TSV. A TSV file has a header if the recipe
names its columns or its first line names a field; else its columns are the fields, in order.
"""

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.records import parse_object, require_unicode
from harken.formats.text import (
    COMPRESSIONS,
    MAX_LINE,
    Line,
    display_path,
    iter_lines,
    open_text,
    read_lines,
)
from harken.formats.tsv import split_cells
from harken.inputs import open_input
from harken.strict_json import is_finite, wrong_value

Columns = Mapping[str, str]  # field of the example -> name of its column
Rows = Iterator[tuple[int, Sequence[object]]]  # line or row, and the value of each field
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
DELIMITERS = ",;\t"
PARQUET_ROWS = 1024  # read at once
SEE = "see docs/tables.md#formats"


class Row(NamedTuple):
    """The texts in one row of a table."""

    number: int  # line on which it starts, or row of a Parquet file; counted from 1
    texts: dict[str, str]  # by field


def is_table(path: Path) -> bool:
    """Whether the name is that of a table."""
    return _uncompressed_name(path).endswith(TABLES)


def has_lists(path: Path) -> bool:
    """Whether the name is that of JSON lines or Parquet, whose values may be lists."""
    return _uncompressed_name(path).endswith((".jsonl", ".parquet"))


def read_table(path: Path, columns: Columns, *, keep_empty: bool = False) -> Iterator[Row]:
    """Yield the rows of a table.

    Numbers are converted to text. Rows without any value are skipped, and an empty value is an
    error, except with `keep_empty`. Blank lines of a file with a header are not rows.
    """
    file, has_row = display_path(path), False
    for number, values in read_values(path, columns):
        where, named = f"{file}:{number}", zip(columns.values(), values, strict=True)
        texts = [cell_text(where, column, value) for column, value in named]
        if keep_empty or all(map(str.strip, texts)):
            has_row = True
            yield Row(number, dict(zip(columns, texts, strict=True)))
        elif any(map(str.strip, texts)):
            raise _empty_value(where, columns, texts)
    if not has_row:
        message = f"{file}: the table has no rows (expected at least one)"
        raise UserError(message, fix="check that the file was written or downloaded completely")


def read_values(path: Path, columns: Columns) -> Rows:
    """Yield the number and the values of each row; those of JSON lines and Parquet may be lists."""
    name = _uncompressed_name(path)
    if name.endswith(".parquet"):
        return _parquet_rows(path, columns)
    return _json_rows(path, columns) if name.endswith(".jsonl") else _text_rows(path, columns)


def column_names(path: Path, usual: Collection[str]) -> list[str]:
    """Return the names of the columns of a CSV, TSV or Parquet file.

    A TSV file names its columns if its first line has one of the `usual` names, ignoring case.
    """
    if _uncompressed_name(path).endswith(".parquet"):
        with _parquet_file(path) as table:
            return list(table.schema_arrow.names)
    first = next(read_lines(path))
    if not _is_csv(path) and not _is_header(first, {name: name for name in usual}):
        return []
    return _cells(first, _delimiter(first, _delimiters(path), usual))


def cell_text(where: str, column: str, value: object) -> str:
    """Return a text or a number as text; None and NaN are empty."""
    if isinstance(value, str):
        return value.replace("\r\n", "\n")
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or is_finite(value):
        return json.dumps(value)
    raise wrong_value(where, column, value, "a text or a number")


def _empty_value(where: str, columns: Columns, texts: Sequence[str]) -> UserError:
    pairs = zip(columns.values(), texts, strict=True)
    column = next(column for column, text in pairs if not text.strip())
    problem = f"{where}: empty value in column {column!r} (expected a text)"
    return UserError(problem, fix="add the value, or remove all rows without one")


def _uncompressed_name(path: Path) -> str:
    name = path.name
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression.suffix)
    return name


# --- CSV and TSV


def _text_rows(path: Path, columns: Columns) -> Rows:
    with open_text(path) as file:
        lines = iter_lines(file, path)
        first = next((line for line in lines if line.text.strip()), None)
        if first is None:
            return
        if _is_csv(path) or _is_header(first, columns):
            yield from _csv_rows(first, lines, columns, _delimiters(path))
            return
        empty = [""] * len(columns)
        yield from ((number, empty) for number in range(1, first.number))
        for line in chain([first], lines):
            cells = split_cells(line, [*columns], SEE) if line.text.strip() else empty
            yield line.number, cells


def _is_csv(path: Path) -> bool:
    return _uncompressed_name(path).endswith(".csv")


def _delimiters(path: Path) -> str:
    return DELIMITERS if _is_csv(path) else "\t"


def _is_header(line: Line, columns: Columns) -> bool:
    """Whether a line names a field, or must be a header because the recipe names columns."""
    names = {cell.strip().lower() for cell in line.text.split("\t")}
    return any(field != column or field.lower() in names for field, column in columns.items())


def _csv_rows(first: Line, lines: Iterable[Line], columns: Columns, delimiters: str) -> Rows:
    """Yield the rows after the header."""
    number, before = first.number, first.number - 1
    try:
        delimiter = _delimiter(first, delimiters, columns.values())
        # Line ends are restored, because quoted fields contain them.
        texts = (f"{line.text}\n" for line in chain([first], lines))
        reader = csv.reader(texts, delimiter=delimiter, strict=True)
        names = [name.strip() for name in next(reader)]
        indices = column_indices(f"{first.where}: the header", names, columns)
        number = before + reader.line_num + 1
        for cells in reader:
            if len(cells) == len(names):
                yield number, [cells[index] for index in indices]
            elif any(map(str.strip, cells)):
                raise _wrong_cells(first.path, number, names, cells, delimiter)
            number = before + reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{first.path}:{number}: the row cannot be read ({str(error).partition(' - ')[0]}; "
            f"expected fields separated by {' or '.join(map(repr, delimiters))})",
            fix="put fields with quotes or line breaks in double quotes, and double the quotes in "
            'them, such as "say ""no"""',
        ) from None


def _delimiter(header: Line, delimiters: str, names: Iterable[str]) -> str:
    """Return the delimiter that finds most of the names, or else most columns, in a header."""
    expected = {*names}

    def found(delimiter: str) -> tuple[int, int]:
        cells = _cells(header, delimiter)
        return len(expected & {*cells}), len(cells)

    return max(delimiters, key=found)


def _cells(header: Line, delimiter: str) -> list[str]:
    """Return the cells of one line; a quoted cell that continues on the next line is cut."""
    # A process-wide limit: by default 131,072 characters, fewer than a long document has.
    csv.field_size_limit(max(MAX_LINE, csv.field_size_limit()))
    text = header.text.replace("\r", " ")  # `csv` raises an error for a carriage return
    return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter))]


def _wrong_cells(
    path: Path, number: int, names: Sequence[str], cells: Sequence[str], delimiter: str
) -> UserError:
    shown = delimiter.join(cells)[:60]
    problem = f"expected {len(names)} fields as in the header, got {len(cells)} in {shown!r}"
    fix = f"put fields that contain {delimiter!r} or line breaks in double quotes"
    return UserError(f"{path}:{number}: {problem}", fix=fix)


# --- JSON lines and Parquet


def _json_rows(path: Path, columns: Columns) -> Rows:
    example = ", ".join(f'"{column}": "…"' for column in columns.values())
    for line in read_lines(path):
        fields = parse_object(line, f"write {{{example}}} in each line", keep_null=True)
        if not {*columns.values()} <= {*fields}:
            column_indices(line.where, list(fields), columns)
        values = [fields[column] for column in columns.values()]
        require_unicode(line.where, *(value for value in values if isinstance(value, str)))
        yield line.number, values


def _parquet_rows(path: Path, columns: Columns) -> Rows:
    with _parquet_file(path) as table:
        numbers = count(1)
        column_indices(str(path), table.schema_arrow.names, columns)
        for batch in table.iter_batches(PARQUET_ROWS, columns=[*{*columns.values()}]):
            values = (batch.column(column).to_pylist() for column in columns.values())
            for row in zip(*values, strict=True):
                yield next(numbers), row


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        message = f"{path}: reading Parquet needs the package pyarrow"
        raise UserError(message, fix="install it with `pip install 'harken[parquet]'`") from None
    with open_input(path, "a Parquet file") as file:
        try:
            yield ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
        except (ArrowException, OSError, ValueError) as error:
            message = f"{path}: the file cannot be read ({str(error)[:200]}; expected Parquet)"
            raise UserError(message, fix="write or download the file again") from error


def column_indices(where: str, names: Sequence[str], columns: Columns) -> list[int]:
    """Return the index of the column of each field; raise unless it occurs exactly once."""
    for field, column in columns.items():
        if column not in names:
            near, shown = nearest(column, names), ", ".join(names)
            fix = f"did you mean {near!r}? " if near else ""
            fix += f"Rename the column, or set data.columns.{field}"
            message = f"{where} has no column {column!r} (expected one of {shown[:200]})"
            raise UserError(message, fix=fix)
        if names.count(column) > 1:
            message = f"{where} has {names.count(column)} columns {column!r} (expected one)"
            raise UserError(message, fix="rename or remove all but one of them")
    return [names.index(column) for column in columns.values()]
