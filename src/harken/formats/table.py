"""Read the rows of tables: CSV, TSV, JSON lines and Parquet, in constant memory.

    reviews.csv      a header; fields separated by `,`, `;` or tabs, in quotes if they contain these
    reviews.jsonl    {"review": "Too sweet.", "stars": 2}
    reviews.parquet  a column per name
    questions.tsv    Where was Ada King born?<TAB>London

The name decides the format; other names are read as TSV. A TSV file has a header if the recipe
names its columns or its first line names a field; else its columns are the fields, in order.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from harken.config.spelling import nearest
from harken.errors import UserError
from harken.formats.records import parse_object, require_unicode
from harken.formats.text import COMPRESSIONS, MAX_LINE, Line, iter_lines, open_text, read_lines
from harken.inputs import open_input
from harken.strict_json import is_finite, wrong_value

Columns = Mapping[str, str]  # field of the example -> name of its column
Rows = Iterator[tuple[int, Sequence[object]]]  # line or row, and the value of each field
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
DELIMITERS = ",;\t"
PARQUET_ROWS = 1024  # read at once
SEE = "see docs/formats.md#tables"


class Row(NamedTuple):
    """The texts of a row."""

    number: int  # line on which it starts, or row of a Parquet file; counted from 1
    texts: dict[str, str]  # by field


def is_table(path: Path) -> bool:
    """Whether the name is that of a table."""
    return _uncompressed_name(path).endswith(TABLES)


def read_table(path: Path, columns: Columns, *, keep_empty: bool = False) -> Iterator[Row]:
    """Yield the rows of a table.

    Numbers are converted to text. Rows without any value are skipped, and an empty value is an
    error, except with `keep_empty`. Blank lines of a file with a header are no rows.
    """
    name, has_row = _uncompressed_name(path), False
    if name.endswith(".parquet"):
        rows = _parquet_rows(path, columns)
    else:
        rows = _json_rows(path, columns) if name.endswith(".jsonl") else _text_rows(path, columns)
    for number, values in rows:
        where, named = f"{path}:{number}", zip(columns.values(), values, strict=True)
        texts = [cell_text(where, column, value) for column, value in named]
        if keep_empty or all(map(str.strip, texts)):
            has_row = True
            yield Row(number, dict(zip(columns, texts, strict=True)))
        elif any(map(str.strip, texts)):
            raise _empty_value(where, columns, texts)
    if not has_row:
        message = f"{path}: the table has no rows (expected at least one)"
        raise UserError(message, fix="check that the file was written or downloaded completely")


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
    is_csv = _uncompressed_name(path).endswith(".csv")
    with open_text(path) as file:
        lines = iter_lines(file, path)
        first = next((line for line in lines if line.text.strip()), None)
        if first is None:
            return
        if is_csv or _is_header(first, columns):
            yield from _csv_rows(first, lines, columns, DELIMITERS if is_csv else "\t")
        else:
            yield from _plain_rows(chain([first], lines), columns)


def _is_header(line: Line, columns: Columns) -> bool:
    """Whether a line names a field, or must be a header because the recipe names columns."""
    names = {cell.strip().lower() for cell in line.text.split("\t")}
    return any(field != column or field in names for field, column in columns.items())


def _csv_rows(first: Line, lines: Iterable[Line], columns: Columns, delimiters: str) -> Rows:
    """Yield the rows after the header; the delimiter is that which finds most names in it."""

    def names_found(delimiter: str) -> tuple[int, int]:
        names = _cells(first.text, delimiter)
        return len({*columns.values()} & {*names}), len(names)

    delimiter = max(delimiters, key=names_found)
    # A process-wide limit: by default 131,072 characters, fewer than a long document has.
    csv.field_size_limit(max(MAX_LINE, csv.field_size_limit()))
    # Line ends are restored, because quoted fields contain them.
    texts = (f"{line.text}\n" for line in chain([first], lines))
    reader, before = csv.reader(texts, delimiter=delimiter, strict=True), first.number - 1
    number = first.number
    try:
        names = [name.strip() for name in next(reader)]
        indices = _column_indices(f"{first.where}: the header", names, columns)
        number = before + reader.line_num + 1
        for cells in reader:
            if len(cells) == len(names):
                yield number, [cells[index] for index in indices]
            elif any(map(str.strip, cells)):
                raise _wrong_cells(first.path, number, names, cells, delimiter)
            number = before + reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{first.path}:{number}: the row cannot be read ({error}; expected fields separated "
            f"by {delimiter!r})",
            fix='put fields with quotes in quotes, and double the quotes in them: "say ""no"""',
        ) from None


def _cells(text: str, delimiter: str) -> list[str]:
    """Return the cells of a line; a quoted cell that continues on the next line is cut."""
    return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter))]


def _wrong_cells(
    path: Path, number: int, names: Sequence[str], cells: Sequence[str], delimiter: str
) -> UserError:
    shown = delimiter.join(cells)[:60]
    problem = f"expected {len(names)} fields as in the header, got {len(cells)} in {shown!r}"
    fix = f"put fields that contain {delimiter!r} or line breaks in double quotes"
    return UserError(f"{path}:{number}: {problem}", fix=fix)


def _plain_rows(lines: Iterable[Line], columns: Columns) -> Rows:
    """Yield the cells of tab-separated lines without header and quotes."""
    for line in lines:
        cells = line.text.split("\t")
        if not line.text.strip():
            cells = [""] * len(columns)
        if len(cells) != len(columns):
            raise not_cells(line, "<TAB>".join(columns), SEE)
        yield line.number, cells


def not_cells(line: Line, expected: str, see: str) -> UserError:
    """Return the error for a line with another number of tabs."""
    tabs, text = line.text.count("\t"), line.text.strip()
    fix = "keep two columns, for example with `cut -f1,2`" if tabs > 1 else see
    if not tabs and "  " in text:
        fix = "replace the run of spaces by one tab"
    return line.error(f"expected {expected}, got {tabs} tabs in {text[:60]!r}", fix)


# --- JSON lines and Parquet


def _json_rows(path: Path, columns: Columns) -> Rows:
    example = ", ".join(f'"{column}": "…"' for column in columns.values())
    for line in read_lines(path):
        fields = parse_object(line, f"write {{{example}}} in each line")
        if not {*columns.values()} <= {*fields}:
            _column_indices(line.where, list(fields), columns)
        values = [fields[column] for column in columns.values()]
        require_unicode(line.where, *(value for value in values if isinstance(value, str)))
        yield line.number, values


def _parquet_rows(path: Path, columns: Columns) -> Rows:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        message = f"{path}: reading Parquet needs the package pyarrow"
        raise UserError(message, fix="install it with `pip install 'harken[parquet]'`") from None
    with open_input(path, "a Parquet file") as file:
        try:
            table, numbers = ParquetFile(file, buffer_size=1 << 20, pre_buffer=False), count(1)
            _column_indices(str(path), table.schema_arrow.names, columns)
            for batch in table.iter_batches(PARQUET_ROWS, columns=[*{*columns.values()}]):
                values = (batch.column(column).to_pylist() for column in columns.values())
                for row in zip(*values, strict=True):
                    yield next(numbers), row
        except (ArrowException, OSError, ValueError) as error:
            message = f"{path}: the file cannot be read ({str(error)[:200]}; expected Parquet)"
            raise UserError(message, fix="write or download the file again") from error


def _column_indices(where: str, names: Sequence[str], columns: Columns) -> list[int]:
    """Return the index of the column of each field; raise unless it occurs exactly once."""
    for field, column in columns.items():
        if column not in names:
            near, shown = nearest(column, names), ", ".join(names)
            fix = f"did you mean {near!r}? " if near else ""
            fix += f"Set data.columns.{field} to the column of the {field}"
            message = f"{where} has no column {column!r} (expected one of {shown[:200]})"
            raise UserError(message, fix=fix)
        if names.count(column) > 1:
            message = f"{where} has {names.count(column)} columns {column!r} (expected one)"
            raise UserError(message, fix="rename or remove all but one of them")
    return [names.index(column) for column in columns.values()]
