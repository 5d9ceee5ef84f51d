"""`harken compare`: print the metrics of runs and their differences from the first."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harken.cli.evaluate import data_files
from harken.cli.output import json_or_table, remark, result_json, table, value_with_interval
from harken.cli.search_options import with_search_options
from harken.config import as_plain
from harken.errors import UserError
from harken.files import check_writable, write_text
from harken.measure.run_comparison import pivot_table, require_same_examples
from harken.recipe import load_recipe, task_of
from harken.report.comparison import (
    HEADER,
    ComparedRun,
    ComparisonRow,
    compare_runs,
    comparison_page,
    metric_keys,
)
from harken.report.run_page import metric_name
from harken.run import RECIPE, load, require_run


def run(options: argparse.Namespace) -> int:
    """Print the metrics of every run, then the differences from the first."""
    if options.rows or options.columns or options.metric:
        return _pivot(options)
    if options.out is not None:
        check_writable(options.out)
    files = data_files(options)
    task = _common_task(options.folders)
    require_same_examples(_examples(options.folders, options.split or "dev", files))
    runs = _evaluate(options, files)
    rows = compare_runs(runs)
    if options.out is not None:
        write_text(options.out, comparison_page(task, runs, rows))
        remark(f"report: {options.out}")
    if options.json:
        result_json(_record(task, runs, rows))
    else:
        _print(runs, rows)
    return 0


def _common_task(folders: Sequence[Path]) -> str:
    if len(folders) < 2:
        raise UserError(
            f"{folders[0]}: expected two or more runs, got one",
            fix="name another run, or use `harken evaluate`",
        )
    seen: dict[Path, Path] = {}
    for folder in folders:
        require_run(folder)
        other = seen.setdefault(folder.resolve(), folder)
        if other is not folder:
            raise UserError(f"{folder}: the same run as {other}", fix="name each run once")
    tasks = {folder: load_recipe(folder / RECIPE).task for folder in folders}
    first = folders[0]
    for folder, task in tasks.items():
        if task != tasks[first]:
            raise UserError(
                f"{folder}: expected a run of task {tasks[first]!r} as {first}, got {task!r}",
                fix="compare runs of one task",
            )
    return tasks[first]


def _examples(
    folders: Sequence[Path], split: str, files: Sequence[Path]
) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield the examples of each run: held-out shares with other seeds are not comparable."""
    for folder in folders:
        recipe = load_recipe(folder / RECIPE)
        task = task_of(recipe)
        examples = task.read(recipe, files) if files else task.read_splits(recipe).get(split)
        if examples is None:  # no such split: reported when the run is evaluated
            return
        yield str(folder), examples


def _evaluate(options: argparse.Namespace, files: Sequence[Path]) -> list[ComparedRun]:
    """Evaluate the runs, one at a time in memory."""
    names = [folder.resolve().name for folder in options.folders]
    runs = []
    for folder, name in zip(options.folders, names, strict=True):
        loaded = with_search_options(load(folder, options.device), options)
        runs.append(
            ComparedRun(
                folder=str(folder),
                name=name if names.count(name) == 1 else str(folder),
                parameters=sum(weight.numel() for weight in loaded.model.parameters()),
                vocabulary=loaded.vocabulary.sizes.entries,
                seed=loaded.recipe.seed,
                evaluation=loaded.evaluate(options.split or "dev", files),
            )
        )
    return runs


def _record(
    task: str, runs: Sequence[ComparedRun], rows: Sequence[ComparisonRow]
) -> dict[str, object]:
    counts = {run.evaluation.n for run in runs}
    return {
        "task": task,
        "n": counts.pop() if len(counts) == 1 else None,
        "runs": [
            {
                "run": run.folder,
                "n": run.evaluation.n,
                "metrics": {name: asdict(value) for name, value in run.evaluation.metrics.items()},
            }
            for run in runs
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


def _print(runs: Sequence[ComparedRun], rows: Sequence[ComparisonRow]) -> None:
    metrics = [run.evaluation.metrics for run in runs]
    # A column per run: a task may have more metrics than fit side by side.
    figures = [
        (metric_name(name), *(value_with_interval(own.get(name)) for own in metrics))
        for name in metric_keys(runs)
    ]
    counts = ("n", *(str(run.evaluation.n) for run in runs))
    table(("metric", *(run.name for run in runs)), [counts, *figures])
    table(HEADER, [row.cells for row in rows], text_columns=(0, 1, 2, 6))


def _pivot(options: argparse.Namespace) -> int:
    """Print one metric of every run on its own data, as a table by two keys of the recipes."""
    if options.rows is None or options.columns is None:
        raise UserError(
            "compare: expected both --rows and --columns",
            fix="give both keys, such as --rows data.train --columns model.encoder.kind",
        )
    files, split = data_files(options), options.split or "dev"
    runs = (
        (str(folder), as_plain(loaded.recipe), partial(loaded.evaluate, split, files))
        for folder in options.folders
        for loaded in [with_search_options(load(folder, options.device), options)]
    )
    metric, cells = pivot_table(runs, options.rows, options.columns, options.metric)
    listed = [{**cell._asdict(), "figure": asdict(cell.figure)} for cell in cells]
    record = {"rows": options.rows, "columns": options.columns, "metric": metric, "cells": listed}
    keys = dict.fromkeys(cell.row for cell in cells)
    columns = dict.fromkeys(cell.column for cell in cells)
    figures = {(cell.row, cell.column): cell.figure for cell in cells}
    rows = [(key, *(value_with_interval(figures.get((key, c))) for c in columns)) for key in keys]
    json_or_table(options, record, (options.rows, *columns), rows)
    if not options.json:
        remark(f"{metric_name(metric)}, with 95 % intervals; each run on its own data")
    return 0
