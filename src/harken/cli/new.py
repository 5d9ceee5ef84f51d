"""`harken new`: check files with the reader of the task, and write a recipe for them."""

import argparse
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from harken import config
from harken.cli.output import print_note, print_result
from harken.config.write import toml_literal
from harken.errors import UserError
from harken.files import write_text
from harken.formats.column_guess import guess_columns
from harken.formats.table import is_table, read_values
from harken.formats.text import require_file
from harken.inputs import is_folder
from harken.recipe import TASKS, recipe_type
from harken.tasks.task import Layout, Splits

COLUMNS = "data.columns."
SHOWN_ROWS = 5
EVALUATIONS = 15  # approximate number of validation rounds; the interval is rounded to one digit

HEADER = """\
# Written by `harken new`. Other keys have defaults; the run folder lists every key with its value.
task = "{task}"
seed = 0

[data]
"""


def run(options: argparse.Namespace) -> None:
    """Check the files, then write the recipe."""
    if options.out.exists():
        problem = f"{options.out}: the file exists already"
        raise UserError(problem, fix="choose another name with --out, or remove the file")
    files = _files_by_key(options.task, TASKS[options.task].layout, options.files)
    dev_files = [path for key, path in files.items() if key.startswith("dev")]
    if options.dev is not None and dev_files:
        problem = f"--dev {options.dev}: expected a share or a dev file, got both ({dev_files[0]})"
        raise UserError(problem, fix="leave out --dev or the file")
    for text in options.sets:
        if not text.startswith(COLUMNS):
            problem = f"--set {text}: expected {COLUMNS}FIELD=NAME"
            raise UserError(problem, fix="change other keys in the recipe, or with train --set")
    for file in options.files:
        if not (TASKS[options.task].layout.folders and is_folder(file)):
            require_file(file)
    recipe = new_recipe(options.task, files, options.dev, options.out.parent, options.sets)
    write_text(options.out, recipe.text)
    print_result(str(options.out))
    for note in (*recipe.notes, f"next: harken train {options.out}"):
        print_note(note)


class NewRecipe(NamedTuple):
    """The text of a recipe, and notes for the user."""

    text: str
    notes: Sequence[str]


def new_recipe(
    task: str,
    files: Mapping[str, Path],
    dev: float | None,
    folder: Path,
    column_sets: Sequence[str] = (),
) -> NewRecipe:
    """Return a recipe for files (by key of [data]), with paths relative to `folder`.

    column_sets: values such as `data.columns.text=review`, which are not guessed
    """
    layout, header = TASKS[task].layout, HEADER.format(task=task)
    data: dict[str, Any] = {
        key: os.path.relpath(path, folder).replace(os.sep, "/") for key, path in files.items()
    }
    if dev is not None:
        data["dev"] = dev
    text, overrides = header + _data_table(data, {}), [*layout.overrides([*files.values()])]
    sets = [*overrides, *column_sets]
    recipe: Any = config.loads(recipe_type(), text, base=folder, overrides=sets)
    if isinstance(recipe.data.dev, float):
        data["dev"] = recipe.data.dev  # write the share into the recipe even if it is the default
    columns, notes = _guessed_columns(getattr(recipe.data, "columns", None), files, column_sets)
    if columns:
        data["columns"] = columns
    text = header + _data_table(data, {})
    recipe = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    notes += layout.check(recipe, [*files.values()])
    splits = TASKS[task].read_splits(recipe)
    overrides += [f"{key}={value}" for key, value in layout.suggest(recipe, splits).items()]
    recipe = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    if layout.stage is not None:
        # `stage` is a key such as "training.captions".
        interval = max(1.0, attrgetter(layout.stage)(recipe).steps / EVALUATIONS)
        power: int = 10 ** math.floor(math.log10(interval))
        overrides.append(f"{layout.stage}.evaluate_every={round(interval / power) * power}")
    recipe = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    counts = _counts(layout, recipe, splits)
    template = layout.template if isinstance(layout.template, str) else layout.template(recipe)
    text = header + _data_table(data, counts) + template.format_map(values)
    return NewRecipe(text, notes)


def _guessed_columns(
    columns: Any, files: Mapping[str, Path], column_sets: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the name of the column of each field of the tables, and notes for the user.

    columns: the table [data.columns], in which `column_sets` are set; None for tasks without it
    """
    guessed, notes = dict[str, str](), list[str]()
    keys = {text.partition("=")[0].strip() for text in column_sets}
    for key, path in files.items() if columns is not None else ():
        fields = [field for field in columns.of(key) if field not in guessed]
        known = {field: getattr(columns, field) for field in fields if COLUMNS + field in keys}
        if fields and is_table(path) and (new := guess_columns(path, fields, known)):
            guessed |= new
            notes += _preview(path, new, known)
    for key in keys - {COLUMNS + field for field in guessed}:
        fix = "leave it out, or name a CSV, TSV, JSON lines or Parquet file"
        raise UserError(
            f"--set {key}: expected a table, got {', '.join(map(str, files.values()))}", fix=fix
        )
    return guessed, notes


def _preview(path: Path, columns: Mapping[str, str], known: Collection[str]) -> Iterator[str]:
    """Yield a line that states the columns, and the first rows."""
    named = ", ".join(
        f"{field} = {column!r}" + (" (guessed)" if field not in known else "")
        for field, column in columns.items()
    )
    yield f"{path}: columns {named}; change them with --set {COLUMNS}{next(iter(columns))}=NAME"
    for number, values in islice(read_values(path, columns), SHOWN_ROWS):
        cells = (
            f"{field} {str(value)[:60]!r}" for field, value in zip(columns, values, strict=True)
        )
        yield f"  {number}: {', '.join(cells)}"


def _counts(layout: Layout[Any, Any], recipe: Any, splits: Splits[Any]) -> dict[str, str]:
    """Return a comment with the number of examples for each key of [data]."""
    counts = {name: f"{layout.count(part):,} {layout.examples}" for name, part in splits.items()}
    if isinstance(recipe.data.dev, float):
        counts["dev"] = f"share held out: {counts['dev']}"
        counts["train"] = f"{counts['train']} kept"
    if hasattr(recipe.data, "pretrain"):
        texts = recipe.data.corpus().size().texts
        counts["pretrain"] = f"{texts:,} texts"
    return counts


def _data_table(data: Mapping[str, Any], counts: Mapping[str, str]) -> str:
    """Return a TOML line per key, with its count as a comment (on the first of parallel files)."""
    lines = []
    for key, value in data.items():
        count = counts.get(key.removesuffix(".source"))
        lines.append(f"{key} = {toml_literal(value)}" + (f"    # {count}\n" if count else "\n"))
    return "".join(lines)


def _files_by_key(task: str, layout: Layout[Any, Any], files: Sequence[Path]) -> dict[str, Path]:
    """Return the file for each key of [data]."""
    if Path("-") in files:
        raise UserError("-: expected a file, got stdin", fix="save the data to a file")
    for keys in layout.calls.values():
        if len(keys) == len(files):
            return dict(zip(keys, files, strict=True))
    *numbers, last = [str(len(keys)) for keys in layout.calls.values()]
    counts = f"{', '.join(numbers)} or {last}" if numbers else last  # such as "1, 2 or 3"
    raise UserError(
        f"new {task}: expected {counts} files, got {len(files)}",
        fix="run " + " or ".join(f"`harken new {task} {call}`" for call in layout.calls),
    )
