"""Guess which columns of a table hold the fields of an example, by names and contents."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from harken.errors import UserError
from harken.formats.records import parse_object
from harken.formats.table import column_names, has_lists, read_values
from harken.formats.text import read_lines

MAX_ROWS = 1000  # that a guess is based on
# Usual names of the columns of each field, in lower case.
NAMES: Mapping[str, Sequence[str]] = {
    "text": ("text", "review", "sentence", "comment", "content", "body", "document", "message"),
    "label": ("label", "labels", "class", "category", "stars", "rating", "sentiment", "target"),
    "audio": ("audio", "sound", "file", "path", "wav"),
    "image": ("image", "picture", "file", "path"),
    "question": ("question", "query", "prompt"),
    "answer": ("answer", "answers", "response", "reply"),
    "source": ("source", "src", "input"),
    "target": ("target", "tgt", "translation", "output"),
    "words": ("words", "tokens"),
    "tags": ("tags", "labels"),
}
LABELS = ("label", "tags")  # fields with few distinct values; others hold long texts
INPUTS = ("question", "source")  # of the two columns with the longest texts, the left one
LISTS = ("words", "tags")
LISTS_OR_TEXTS = ("label",)

Values = Mapping[str, Sequence[object]]  # the first values of each column


def guess_columns(path: Path, fields: Collection[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the column of each field; `known` alone if the file does not name its columns.

    A column is guessed by its name, which is that of the field or a usual one, or else by its
    contents: the longest texts, or the fewest distinct values. Columns in `known` are not guessed.
    """
    usual = chain.from_iterable(NAMES.get(field, (field,)) for field in fields)
    values = first_values(path, {*usual, *(column.lower() for column in known.values())})
    if not values:
        return dict(known)
    guessed = dict[str, str]()
    for field in fields:
        left = [name for name in values if name not in (*guessed.values(), *known.values())]
        usable = [name for name in left if _has_lists(values[name]) == (field in LISTS)]
        usable = left if field in LISTS_OR_TEXTS else usable
        if field not in known and not usable:
            problem = f"{path}: no column for the {field} (the columns are {', '.join(values)})"
            raise UserError(problem, fix=f"add one, or set data.columns.{field}")
        guessed[field] = known.get(field) or _best_column(field, usable, values)
    return guessed


def first_values(path: Path, usual: Collection[str]) -> Values:
    """Return the values of the first rows by column; empty if the file does not name columns.

    A TSV file names its columns if its first line has one of the `usual` names, ignoring case.
    """
    if has_lists(path) and path.suffix != ".parquet":
        rows = [
            parse_object(line, "write one", keep_null=True)
            for line in islice(read_lines(path), MAX_ROWS)
        ]
        common = [name for name in rows[0] if all(name in row for row in rows)]
        return {name: [row[name] for row in rows] for name in common}
    names = column_names(path, usual)
    columns = {name: name for name in names if name and names.count(name) == 1}
    table = [row for _, row in islice(read_values(path, columns), MAX_ROWS)] if columns else []
    return dict(zip(columns, zip(*table, strict=True), strict=True)) if table else {}


def _best_column(field: str, names: Sequence[str], values: Values) -> str:
    usual = NAMES.get(field, (field,))
    rules: list[Callable[[str], bool]] = [
        lambda name: name == field,
        lambda name: name.lower() in usual,
        lambda name: any(word in usual for word in re.findall("[a-z]+", name.lower())),
    ]
    for rule in rules:
        if similar := [name for name in names if rule(name)]:
            names = similar
            break
    if field in LABELS:
        return min(names, key=lambda name: _count_distinct(values[name]))
    longest = sorted(names, key=lambda name: -sum(len(str(value)) for value in values[name]))
    return min(longest[:2], key=names.index) if field in INPUTS else longest[0]


def _count_distinct(values: Sequence[object]) -> int:
    """Return the number of distinct values; for a constant, which is no label, a large number."""
    flat = chain.from_iterable(value if isinstance(value, list) else [value] for value in values)
    count = len(set(map(str, flat)))
    return count if count > 1 else len(values) + 1


def _has_lists(values: Sequence[object]) -> bool:
    return any(isinstance(value, list) for value in values)
