"""`harken new`: check files with the reader of the task, and write a recipe for them."""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from harken import config
from harken.cli.output import print_note, print_result
from harken.config.spelling import require_choice
from harken.config.write import toml_literal
from harken.errors import UserError
from harken.files import write_text
from harken.formats.text import require_file
from harken.inputs import is_folder
from harken.recipe import TASKS, recipe_type
from harken.tasks.task import Layout, Splits

EVALUATIONS = 15  # approximate number of validation rounds; the interval is rounded to one digit

HEADER = """\
# Written by `harken new`. Other keys have defaults; the run folder lists every key with its value.
task = "{task}"
seed = 0

[data]
"""


def run(options: argparse.Namespace) -> None:
    """Check the files, then write the recipe."""
    require_choice("TASK", options.task, list(TASKS))
    if options.out.exists():
        problem = f"{options.out}: the file exists already"
        raise UserError(problem, fix="choose another name with --out, or remove the file")
    layout = TASKS[options.task].layout
    files = _files_by_key(options.task, layout, options.files)
    dev_files = [path for key, path in files.items() if key.startswith("dev")]
    if options.dev is not None and dev_files:
        problem = f"--dev {options.dev}: expected a share or a dev file, got both ({dev_files[0]})"
        raise UserError(problem, fix="leave out --dev or the file")
    for file in options.files:
        if not (layout.folders and is_folder(file)):
            require_file(file)
    notes = layout.check(options.files)
    write_text(options.out, recipe_text(options.task, files, options.dev, options.out.parent))
    print_result(str(options.out))
    for note in (*notes, f"next: harken train {options.out}"):
        print_note(note)


def recipe_text(task: str, files: Mapping[str, Path], dev: float | None, folder: Path) -> str:
    """Return a recipe for files (by key of [data]), with paths relative to `folder`."""
    layout, header = TASKS[task].layout, HEADER.format(task=task)
    data: dict[str, Any] = {
        key: os.path.relpath(path, folder).replace(os.sep, "/") for key, path in files.items()
    }
    if dev is not None:
        data["dev"] = dev
    text, overrides = header + _data_table(data, {}), [*layout.overrides([*files.values()])]
    recipe: Any = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    if isinstance(recipe.data.dev, float):
        data["dev"] = recipe.data.dev  # write the share into the recipe even if it is the default
    splits = TASKS[task].read_splits(recipe)
    overrides += [f"{key}={value}" for key, value in layout.suggest(recipe, splits).items()]
    if layout.stage is not None:
        # `stage` is a key such as "training.captions".
        interval = max(1.0, attrgetter(layout.stage)(recipe).steps / EVALUATIONS)
        power: int = 10 ** math.floor(math.log10(interval))
        overrides.append(f"{layout.stage}.evaluate_every={round(interval / power) * power}")
    recipe = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    counts = _counts(layout, recipe, splits)
    template = layout.template if isinstance(layout.template, str) else layout.template(recipe)
    return header + _data_table(data, counts) + template.format_map(values)


def _counts(layout: Layout[Any, Any], recipe: Any, splits: Splits[Any]) -> dict[str, str]:
    """Return a comment with the number of examples for each key of [data]."""
    counts = {name: f"{layout.count(part):,} {layout.examples}" for name, part in splits.items()}
    if isinstance(recipe.data.dev, float):
        counts["dev"] = f"share held out: {counts['dev']}"
        counts["train"] = f"{counts['train']} kept"
    if hasattr(recipe.data, "pretrain"):
        texts = recipe.data.corpus().size().texts
        counts["pretrain"] = f"{texts:,} texts, one per line"
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
