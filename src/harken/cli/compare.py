"""`harken compare`: print the metrics of runs and their differences from the first."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harken.cli.evaluate import data_files
from harken.cli.output import json_or_table, print_note, result_json, table, value_with_interval
from harken.cli.search_options import with_search_options
from harken.config import as_plain
from harken.errors import UserError
from harken.files import check_writable, write_text
from harken.measure.run_comparison import pivot_table, require_same_examples
from harken.recipe import Recipe, load_recipe, task_of
from harken.report import comparison
from harken.report.comparison import ComparedRun, ComparisonRow
from harken.report.run_page import metric_name
from harken.run import RECIPE, load, require_run


def run(options: argparse.Namespace) -> None:
    """Print the metrics of every run, then the differences from the first."""
    if options.rows or options.columns or options.metric:
        _print_pivot(options)
        return
    if options.out is not None:
        check_writable(options.out)
    files = data_files(options)
    recipes = _recipes(options.folders)
    task = recipes[options.folders[0]].task
    require_same_examples(_examples(recipes, options.split or "dev", files))
    runs = _evaluate(options, files)
    rows = comparison.compare_runs(runs)
    if options.out is not None:
        write_text(options.out, comparison.comparison_page(task, runs, rows))
        print_note(f"report: {options.out}")
    if options.json:
        result_json(_record(task, runs, rows))
    else:
        _print(runs, rows)


def _recipes(folders: Sequence[Path]) -> dict[Path, Recipe]:
    """Read the recipes of two or more different runs of the same task."""
    if len(folders) < 2:
        problem = f"{folders[0]}: expected two or more runs, got one"
        raise UserError(problem, fix="name another run, or use `harken evaluate`")
    resolved: dict[Path, Path] = {}
    for folder in folders:
        require_run(folder)
        other = resolved.setdefault(folder.resolve(), folder)
        if other is not folder:
            raise UserError(f"{folder}: the same run as {other}", fix="name each run once")
    recipes = {folder: load_recipe(folder / RECIPE) for folder in folders}
    expected = recipes[folders[0]].task
    for folder, recipe in recipes.items():
        if recipe.task != expected:
            problem = f"{folder}: expected a run of task {expected!r}, got {recipe.task!r}"
            raise UserError(problem, fix=f"compare runs of the task of {folders[0]}")
    return recipes


def _examples(
    recipes: Mapping[Path, Recipe], split: str, files: Sequence[Path]
) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield the examples of each run: held-out shares with other seeds are not comparable."""
    for folder, recipe in recipes.items():
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
    listed = []
    for run in runs:
        metrics = {name: asdict(value) for name, value in run.evaluation.metrics.items()}
        listed.append({"run": run.folder, "n": run.evaluation.n, "metrics": metrics})
    differences = [
        {"run": row.run.folder, "against": row.against.folder, "metric": row.metric}
        | asdict(row.difference)
        for row in rows
        if row.difference is not None
    ]
    counts = {run.evaluation.n for run in runs}
    n = counts.pop() if len(counts) == 1 else None
    return {"task": task, "n": n, "runs": listed, "differences": differences}


def _print(runs: Sequence[ComparedRun], rows: Sequence[ComparisonRow]) -> None:
    # A column per run: a task may have more metrics than fit side by side.
    figures = [
        (metric_name(key), *(value_with_interval(run.evaluation.metrics.get(key)) for run in runs))
        for key in comparison.metric_keys(runs)
    ]
    counts = ("n", *(str(run.evaluation.n) for run in runs))
    table(("metric", *(run.name for run in runs)), [counts, *figures])
    table(comparison.HEADER, [row.cells for row in rows], text_columns=(0, 1, 2, 6))


def _print_pivot(options: argparse.Namespace) -> None:
    """Print one metric of every run on its own data, as a table by two keys of the recipes."""
    if options.rows is None or options.columns is None:
        example = "--rows data.train --columns model.encoder.kind"
        raise UserError("expected both --rows and --columns", fix=f"give both, such as {example}")
    files, split = data_files(options), options.split or "dev"
    runs = (
        (str(folder), as_plain(loaded.recipe), partial(loaded.evaluate, split, files))
        for folder in options.folders
        for loaded in [with_search_options(load(folder, options.device), options)]
    )
    metric, cells = pivot_table(runs, options.rows, options.columns, options.metric)
    listed = [{**cell._asdict(), "figure": asdict(cell.figure)} for cell in cells]
    record = {"rows": options.rows, "columns": options.columns, "metric": metric, "cells": listed}
    columns = dict.fromkeys(cell.column for cell in cells)
    figures = {(cell.row, cell.column): cell.figure for cell in cells}
    rows = [
        (row, *(value_with_interval(figures.get((row, column))) for column in columns))
        for row in dict.fromkeys(cell.row for cell in cells)
    ]
    json_or_table(options, record, (options.rows, *columns), rows)
    if not options.json:
        print_note(f"{metric_name(metric)}, with 95 % intervals; each run on its own data")
