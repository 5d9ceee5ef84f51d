"""Write a recipe for your own files, after checking them.

The recipe shows the keys that most people change; paths in it are relative to it, so that the
folder can be moved as a whole. The task itself reads the files: what `harken train` would refuse is
refused here.
"""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harken.errors import UserError

if TYPE_CHECKING:
    from harken.tasks.task import Layout, Splits

EVALUATIONS = 15  # during training
EPILOG = """`harken new TASK` without files lists the files that the task takes.

examples:
  harken new answer texts.txt questions.tsv
  harken new tag train.conllu dev.conllu --out recipes/mine.toml
  harken new translate train.en train.de --dev 0.05
  harken new transcribe train.jsonl
"""

HEAD = """\
# Made by `harken new`; every key has a default, `harken train` saves all of them with the run.
task = "{task}"
seed = 0

[data]
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken new`."""
    parser.add_argument("task", metavar="TASK", help="such as tag; an unknown name lists all")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path("recipe.toml"), metavar="RECIPE.toml")
    parser.add_argument(
        "--dev", type=float, metavar="SHARE", help="to hold out for measuring, without a dev file"
    )


def run(options: argparse.Namespace) -> int:
    """Check the files, then write the recipe."""
    from harken.cli.output import remark, result
    from harken.config.spelling import require_choice
    from harken.files import write_text
    from harken.formats.text import require_file
    from harken.recipe import TASKS

    require_choice("TASK", options.task, list(TASKS))
    if options.out.exists():
        raise UserError(
            f"{options.out}: found a file there already, wanted a new name",
            fix="choose another with --out, or remove it",
        )
    layout = TASKS[options.task].layout
    roles = _roles(options.task, layout, options.files)
    _check_share(options.dev, roles)
    for file in options.files:
        require_file(file)
    notes = layout.check(options.files)
    text = recipe_text(options.task, roles, options.dev, options.out.parent)
    write_text(options.out, text)
    result(str(options.out))
    for note in notes:
        remark(note)
    remark(f"next: harken train {options.out}")
    return 0


def recipe_text(task: str, roles: Mapping[str, Path], dev: float | None, folder: Path) -> str:
    """The recipe of these files, each with its key of [data], as it stands in a folder."""
    from harken import config
    from harken.recipe import TASKS, recipe_type

    layout, head = TASKS[task].layout, HEAD.format(task=task)
    data: dict[str, Any] = {key: _beside(path, folder) for key, path in roles.items()}
    if dev is not None:
        data["dev"] = dev
    files = [*roles.values()]
    text, overrides = head + _lines(data, {}), [*layout.overrides(files)]
    recipe: Any = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    if isinstance(recipe.data.dev, float):
        data["dev"] = recipe.data.dev
    splits = TASKS[task].read_splits(recipe)
    overrides += [f"{key}={value}" for key, value in _suggested(layout, recipe, splits).items()]
    recipe = config.loads(recipe_type(), text, base=folder, overrides=overrides)
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    return head + _lines(data, _said(layout, recipe, splits)) + layout.template.format_map(values)


def _suggested(layout: "Layout[Any, Any]", recipe: Any, splits: "Splits[Any]") -> dict[str, object]:
    """Values that depend on the data, by key of the recipe."""
    suggested = dict(layout.suggest(recipe, splits))
    if layout.stage is not None:
        stage = attrgetter(layout.stage)(recipe)
        suggested[f"{layout.stage}.evaluate_every"] = evaluation_interval(stage.steps)
    return suggested


def evaluation_interval(steps: int) -> int:
    """Steps between evaluations for about 15 of them, rounded to one digit."""
    interval = max(1.0, steps / EVALUATIONS)
    digit: int = 10 ** math.floor(math.log10(interval))
    return round(interval / digit) * digit


def _said(layout: "Layout[Any, Any]", recipe: Any, splits: "Splits[Any]") -> dict[str, str]:
    """How much is in the files, by key of [data]."""
    from harken.formats.text import read_lines

    said = {name: f"{layout.count(some):,} {layout.examples}" for name, some in splits.items()}
    if isinstance(recipe.data.dev, float):
        said["dev"] = f"share held out: {said['dev']}"
        said["train"] = f"{said['train']} kept"
    if hasattr(recipe.data, "read"):
        said["read"] = f"{sum(1 for _ in read_lines(recipe.data.read)):,} texts, one a line"
    return said


def _lines(data: Mapping[str, Any], said: Mapping[str, str]) -> str:
    """A key a line; of two files side by side, the first tells how much is in both."""
    from harken.config.write import inline

    lines = []
    for key, value in data.items():
        remark = said.get(key.removesuffix(".source"))
        lines.append(f"{key} = {inline(value)}" + (f"    # {remark}\n" if remark else "\n"))
    return "".join(lines)


def _roles(task: str, layout: "Layout[Any, Any]", files: Sequence[Path]) -> dict[str, Path]:
    """The key of [data] that each file is for."""
    if Path("-") in files:
        raise UserError(
            "-: found stdin, wanted a file that the recipe can name", fix="save it first"
        )
    for keys in layout.calls.values():
        if len(keys) == len(files):
            return dict(zip(keys, files, strict=True))
    counts = " or ".join(str(len(keys)) for keys in layout.calls.values())
    raise UserError(
        f"new {task}: found {len(files)} files, wanted {counts}",
        fix="call " + " or ".join(f"`harken new {task} {call}`" for call in layout.calls),
    )


def _check_share(dev: float | None, roles: Mapping[str, Path]) -> None:
    if dev is None:
        return
    if not 0 < dev < 1:
        raise UserError(
            f"--dev {dev}: found no share, wanted a number between 0 and 1",
            fix="leave it out for the usual share",
        )
    for key, path in roles.items():
        if key.startswith("dev"):
            raise UserError(
                f"--dev {dev}: found {path} to measure on too, wanted one of them",
                fix="leave out --dev, or that file",
            )


def _beside(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder).replace(os.sep, "/")
