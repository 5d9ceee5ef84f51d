"""Write examples from Python to the run folder as JSON lines.

The recipe of the run refers to these files, so the run can be resumed, loaded and evaluated like
any other.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from harken.config.spelling import require_choice
from harken.config.write import absolute
from harken.errors import UserError
from harken.files import replacing, sha256
from harken.formats.records import require_unicode
from harken.formats.table import Columns, column_indices
from harken.inputs import is_file
from harken.recipe import Recipe
from harken.run_folder import RECIPE

Examples = Mapping[str, Iterable[Mapping[str, object]]]  # by key of [data]
EXAMPLES = "examples"  # folder in the run folder
KEYS = ("train", "dev", "test", "pretrain")


def name_examples(recipe: Recipe, folder: Path, examples: Examples) -> Recipe:
    """Return the recipe whose [data] names the files that `write_examples` writes."""
    if not isinstance(examples, Mapping):
        problem = f"examples: expected a mapping, got {type(examples).__name__}"
        raise UserError(problem, fix='pass {"train": […], "dev": […]}')
    if not hasattr(recipe.data, "columns"):
        problem = f"examples: task {recipe.task!r} reads its examples from files"
        raise UserError(problem, fix="write them to a file that [data] names")
    for key in examples:
        require_choice("examples", key, [key for key in KEYS if hasattr(recipe.data, key)])
    changed: Any = recipe
    named = {key: _path(folder, key) for key in examples}
    result: Recipe = replace(changed, data=replace(recipe.data, **named))
    return result


@contextmanager
def write_examples(recipe: Recipe, folder: Path, examples: Examples) -> Iterator[None]:
    """Write the examples; remove them after an error if no run was started in the folder.

    A file that exists, because the run is resumed, must have the same contents.
    """
    written = []
    try:
        for key, items in examples.items():
            path = _path(folder, key)
            is_new = not is_file(path)
            _write(path, f"examples[{key!r}]", items, recipe.data.columns.of(key))
            written += [path] * is_new
        yield
    except BaseException:
        if not is_file(folder / RECIPE):
            for path in written:
                path.unlink(missing_ok=True)
            with suppress(OSError):  # they are not empty, or were removed with the run
                (folder / EXAMPLES).rmdir()
                folder.rmdir()
        raise


def _path(folder: Path, key: str) -> Path:
    return absolute(folder / EXAMPLES / f"{key}.jsonl")


def _write(
    path: Path, name: str, examples: Iterable[Mapping[str, object]], columns: Columns
) -> None:
    with replacing(path) as unfinished:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            for index, example in enumerate(examples):
                file.write(_json_line(f"{name}[{index}]", example, columns) + "\n")
        if unfinished.stat().st_size == 0:
            raise UserError(f"{name}: no examples (expected at least one)", fix="check the data")
        if is_file(path) and sha256(path) != sha256(unfinished):
            problem = f"{name}: these are not the examples in {path}"
            raise UserError(problem, fix="pass the same examples, or choose another run folder")


def _json_line(where: str, example: Mapping[str, object], columns: Columns) -> str:
    if not isinstance(example, Mapping):
        expected = f"a mapping with the keys {', '.join(columns.values())}"
        problem = f"{where}: expected {expected}, got {type(example).__name__}"
        raise UserError(problem, fix="pass dictionaries, such as the rows of a datasets.Dataset")
    column_indices(where, list(map(str, example)), columns)
    fields = {column: example[column] for column in columns.values()}
    try:
        line = json.dumps(fields, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"{where}: {str(error)[:200]} (expected texts, numbers or lists of them)"
        raise UserError(problem, fix="convert the values to text") from error
    require_unicode(where, line)
    return line


def _plain(value: Any) -> object:
    """Return a scalar or array of numpy or PyTorch as numbers or lists of numbers."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"a value of type {type(value).__name__}")
    return value.tolist()
