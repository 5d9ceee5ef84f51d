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
from harken.cli.output import print_note, result
from harken.config.spelling import require_choice
from harken.config.write import toml_literal
from harken.errors import UserError
from harken.files import write_text
from harken.formats.text import read_lines, require_file
from harken.recipe import TASKS, recipe_type
from harken.tasks.task import Layout, Splits

EVALUATIONS = 15  # during training, approximately: the interval is rounded to one digit

HEAD = """\
# Made by `harken new`; every key has a default, `harken train` saves all of them with the run.
task = "{task}"
seed = 0

[data]
"""


def run(options: argparse.Namespace) -> None:
    """Check the files, then write the recipe."""
    require_choice("TASK", options.task, list(TASKS))
    if options.out.exists():
        problem = f"{options.out}: the file exists already"
        raise UserError(problem, fix="choose another with --out, or remove it")
    layout = TASKS[options.task].layout
    roles = _roles(options.task, layout, options.files)
    dev_files = [path for key, path in roles.items() if key.startswith("dev")]
    if options.dev is not None and dev_files:
        problem = f"--dev {options.dev}: expected a share or a dev file, got both ({dev_files[0]})"
        raise UserError(problem, fix="leave out --dev, or that file")
    for file in options.files:
        require_file(file)
    notes = layout.check(options.files)
    write_text(options.out, recipe_text(options.task, roles, options.dev, options.out.parent))
    result(str(options.out))
    for note in (*notes, f"next: harken train {options.out}"):
        print_note(note)


def recipe_text(task: str, roles: Mapping[str, Path], dev: float | None, folder: Path) -> str:
    """Return a recipe for these files, given by key of [data], with paths relative to a folder."""
    layout, head = TASKS[task].layout, HEAD.format(task=task)
    data: dict[str, Any] = {
        key: os.path.relpath(path, folder).replace(os.sep, "/") for key, path in roles.items()
    }
    if dev is not None:
        data["dev"] = dev
    text, overrides = head + _data_table(data, {}), [*layout.overrides([*roles.values()])]
    recipe: Any = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    if isinstance(recipe.data.dev, float):
        data["dev"] = recipe.data.dev
    splits = TASKS[task].read_splits(recipe)
    overrides += [f"{key}={value}" for key, value in layout.suggest(recipe, splits).items()]
    if layout.stage is not None:
        interval = max(1.0, attrgetter(layout.stage)(recipe).steps / EVALUATIONS)
        digit: int = 10 ** math.floor(math.log10(interval))
        overrides.append(f"{layout.stage}.evaluate_every={round(interval / digit) * digit}")
    recipe = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    counts = _counts(layout, recipe, splits)
    return head + _data_table(data, counts) + layout.template.format_map(values)


def _counts(layout: Layout[Any, Any], recipe: Any, splits: Splits[Any]) -> dict[str, str]:
    """Return comments with the sizes of the files, by key of [data]."""
    counts = {name: f"{layout.count(part):,} {layout.examples}" for name, part in splits.items()}
    if isinstance(recipe.data.dev, float):
        counts["dev"] = f"share held out: {counts['dev']}"
        counts["train"] = f"{counts['train']} kept"
    if hasattr(recipe.data, "pretrain"):
        texts = sum(1 for _ in read_lines(recipe.data.pretrain))
        counts["pretrain"] = f"{texts:,} texts, one per line"
    return counts


def _data_table(data: Mapping[str, Any], counts: Mapping[str, str]) -> str:
    """Return a line per key; the count of two parallel files is a comment on the first."""
    lines = []
    for key, value in data.items():
        count = counts.get(key.removesuffix(".source"))
        lines.append(f"{key} = {toml_literal(value)}" + (f"    # {count}\n" if count else "\n"))
    return "".join(lines)


def _roles(task: str, layout: Layout[Any, Any], files: Sequence[Path]) -> dict[str, Path]:
    """Return the file for each key of [data]."""
    if Path("-") in files:
        raise UserError("-: expected a file that the recipe can name, got stdin", fix="save it")
    for keys in layout.calls.values():
        if len(keys) == len(files):
            return dict(zip(keys, files, strict=True))
    counts = " or ".join(str(len(keys)) for keys in layout.calls.values())
    raise UserError(
        f"new {task}: expected {counts} files, got {len(files)}",
        fix="call " + " or ".join(f"`harken new {task} {call}`" for call in layout.calls),
    )
