"""Measure runs on the same examples and say which differences are real."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harken.cli.evaluate import files_of
from harken.cli.pivot import add_pivot_options, pivot
from harken.cli.searching import add_search_options
from harken.errors import UserError

if TYPE_CHECKING:
    from harken.report.comparison import ComparisonRow, EvaluatedRun

EPILOG = """examples:
  harken compare runs/plain runs/rotary
  harken compare runs/plain runs/rotary runs/synthesizer --split test --json
  harken compare runs/rnn runs/transformer --source test.en --target test.de --out page.html
  harken compare runs/*/ --rows data.train --columns model.encoder.kind --split test
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken compare`."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN", help="two or more")
    parser.add_argument("--split", choices=("dev", "test"), help="of the recipes; dev if absent")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a file of the task's own form")
    parser.add_argument("--source", type=Path, metavar="PATH", help="sentences, one a line")
    parser.add_argument("--target", type=Path, metavar="PATH", help="their translations")
    add_search_options(parser, ("beam", "by", "ctc_weight"))
    add_pivot_options(parser)
    parser.add_argument("--out", type=Path, metavar="FILE.html", help="write a page too")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the figures of every run, then the differences of each later one from the first."""
    from harken.cli.output import remark, result_json
    from harken.files import check_writable, write_text
    from harken.report.comparison import compare_runs, comparison_page

    if options.rows or options.columns or options.metric:
        return pivot(options)
    if options.out is not None:
        check_writable(options.out)
    files = files_of(options)
    task = _one_task(options.folders)
    _require_same_examples(options.folders, options.split or "dev", files)
    runs = _measured(options, files)
    rows = compare_runs(runs)
    if options.out is not None:
        write_text(options.out, comparison_page(task, runs, rows))
        remark(f"report: {options.out}")
    if options.json:
        result_json(_record(task, runs, rows))
    else:
        _print(runs, rows)
    return 0


def _one_task(folders: Sequence[Path]) -> str:
    """The task of all runs; what makes no comparison is told before anything is measured."""
    from harken.recipe import load_recipe
    from harken.run import RECIPE, require_run

    if len(folders) < 2:
        raise UserError(
            f"{folders[0]}: found one run, wanted two or more to compare",
            fix="name another run, or use `harken evaluate`",
        )
    seen: dict[Path, Path] = {}
    for folder in folders:
        require_run(folder)
        other = seen.setdefault(folder.resolve(), folder)
        if other is not folder:
            raise UserError(
                f"{folder}: found the same run as {other}, wanted different ones",
                fix="name each run once",
            )
    tasks = {folder: load_recipe(folder / RECIPE).task for folder in folders}
    first = folders[0]
    for folder, task in tasks.items():
        if task != tasks[first]:
            raise UserError(
                f"{folder}: found a run of task {task!r}, wanted {tasks[first]!r} as in {first}",
                fix="compare runs of one task",
            )
    return tasks[first]


def _require_same_examples(folders: Sequence[Path], split: str, files: Sequence[Path]) -> None:
    """A share for dev is another one with another seed, and some of it this run has trained on."""
    from harken.recipe import load_recipe, task_of
    from harken.run import RECIPE

    wanted: Sequence[object] | None = None
    for folder in folders:
        recipe = load_recipe(folder / RECIPE)
        task = task_of(recipe)
        # A run without the split says so itself when it is measured.
        found = task.read(recipe, files) if files else task.read_splits(recipe).get(split)
        if found is None:
            return
        wanted = wanted or found
        if found != wanted:
            raise UserError(
                f"{folder}: found {_apart(found, wanted)} of {folders[0]}",
                fix="measure on one file with --data, or --source and --target",
            )


def _apart(found: Sequence[object], wanted: Sequence[object]) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} examples, wanted the {len(wanted)}"
    for number, (example, other) in enumerate(zip(found, wanted, strict=True), start=1):
        if example != other:
            return f"{str(example)[:80]!r} as example {number}, wanted {str(other)[:80]!r}"
    return "the same captions of other pictures, wanted the pictures"


def _measured(options: argparse.Namespace, files: Sequence[Path]) -> list["EvaluatedRun"]:
    """One run at a time is in memory."""
    from harken.cli.searching import searched
    from harken.report.comparison import EvaluatedRun
    from harken.run import load

    names = [folder.resolve().name for folder in options.folders]
    found = []
    for folder, name in zip(options.folders, names, strict=True):
        loaded = searched(load(folder, options.device), options)
        found.append(
            EvaluatedRun(
                folder=str(folder),
                name=name if names.count(name) == 1 else str(folder),
                weights=sum(weight.numel() for weight in loaded.model.parameters()),
                units=loaded.vocabulary.sizes.entries,
                seed=loaded.recipe.seed,
                evaluation=loaded.evaluate(options.split or "dev", files),
            )
        )
    return found


def _record(
    task: str, runs: Sequence["EvaluatedRun"], rows: Sequence["ComparisonRow"]
) -> dict[str, object]:
    from dataclasses import asdict

    counts = {one.evaluation.n for one in runs}
    return {
        "task": task,
        "n": counts.pop() if len(counts) == 1 else None,
        "runs": [
            {
                "run": one.folder,
                "n": one.evaluation.n,
                "metrics": {name: asdict(value) for name, value in one.evaluation.metrics.items()},
            }
            for one in runs
        ],
        "differences": [
            {
                "run": row.run.folder,
                "against": row.against.folder,
                "metric": row.metric,
                **asdict(row.difference),
            }
            for row in rows
            if row.difference is not None
        ],
    }


def _print(runs: Sequence["EvaluatedRun"], rows: Sequence["ComparisonRow"]) -> None:
    from harken.cli.output import spelled_together, table
    from harken.report.comparison import HEADER, metric_keys
    from harken.report.run_page import metric_name

    # A column a run: a task may have more metrics than a screen has room for side by side.
    figures = [
        (
            metric_name(name),
            *(
                spelled_together(one.evaluation.metrics[name])
                if name in one.evaluation.metrics
                else "–"
                for one in runs
            ),
        )
        for name in metric_keys(runs)
    ]
    counts = ("n", *(str(one.evaluation.n) for one in runs))
    table(("metric", *(one.name for one in runs)), [counts, *figures])
    table(HEADER, [row.cells for row in rows], text_columns=(0, 1, 2, 6))
