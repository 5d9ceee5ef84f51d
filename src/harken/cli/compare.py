"""`harken compare`: print the metrics of runs, or of groups of seeds, and their differences."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from harken.cli.evaluate import data_files
from harken.cli.output import (
    format_estimate,
    print_json,
    print_json_or_table,
    print_note,
    print_table,
)
from harken.cli.search_options import with_search_options
from harken.config import as_plain
from harken.errors import UserError
from harken.files import check_writable, write_text
from harken.measure.interval import metric_name
from harken.measure.run_comparison import pivot_table, require_same_examples
from harken.recipe import Recipe, load_effective_recipe, task_of
from harken.report import comparison
from harken.report.comparison import ComparedRun, ComparisonRow
from harken.run import load
from harken.run_folder import RECIPE, require_run, seed_folders

Group = tuple[Path, Sequence[Path]]  # a folder as the user named it, and the runs in it


def run(options: argparse.Namespace) -> None:
    """Print the metrics of every run and the differences from the first, or a table by two keys."""
    if options.rows or options.columns or options.metric:
        _print_pivot(options)
        return
    if options.out is not None:
        check_writable(options.out)
    files = data_files(options)
    groups = [
        (folder, list(seed_folders(folder).values()) or [folder]) for folder in options.folders
    ]
    recipes = _recipes(groups)
    task = next(iter(recipes.values())).task
    require_same_examples(_examples(recipes, options.split or "dev", files))
    runs = _evaluate(groups, options, files)
    rows = comparison.compare_runs(runs)
    if options.out is not None:
        write_text(options.out, comparison.comparison_page(task, runs, rows))
        print_note(f"report: {options.out}")
    if options.json:
        print_json(_record(task, runs, rows))
    else:
        _print(runs, rows)


def _recipes(groups: Sequence[Group]) -> dict[Path, Recipe]:
    """Read the recipes; raise `UserError` if a run is given twice or the tasks differ."""
    if len(groups) < 2:
        problem = f"{groups[0][0]}: expected two or more runs, got one"
        raise UserError(problem, fix="name another run, or use `harken evaluate`")
    resolved: dict[Path, Path] = {}
    folders = [folder for _, members in groups for folder in members]
    for folder in folders:
        require_run(folder)
        other = resolved.setdefault(folder.resolve(), folder)
        if other is not folder:
            raise UserError(f"{folder}: same run as {other}", fix="name each run only once")
    recipes = {folder: load_effective_recipe(folder / RECIPE) for folder in folders}
    expected = recipes[folders[0]].task
    for folder, recipe in recipes.items():
        if recipe.task != expected:
            problem = f"{folder}: expected a run of task {expected!r}, got {recipe.task!r}"
            raise UserError(problem, fix="compare runs of the same task")
    return recipes


def _examples(
    recipes: Mapping[Path, Recipe], split: str, files: Sequence[Path]
) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield the name and the examples of each run.

    Runs of one recipe can have different dev splits: a share such as data.dev = 0.1 is drawn with
    the seed of the run.
    """
    for folder, recipe in recipes.items():
        task = task_of(recipe)
        examples = task.read(recipe, files) if files else task.read_splits(recipe).get(split)
        if examples is None:  # `_evaluate` reports that the recipe has no such split
            return
        yield str(folder), examples


def _evaluate(
    groups: Sequence[Group], options: argparse.Namespace, files: Sequence[Path]
) -> list[ComparedRun]:
    """Evaluate the runs, with only one model in memory at a time."""
    names = [folder.resolve().name for folder, _ in groups]
    return [
        _evaluate_group(
            folder, name if names.count(name) == 1 else str(folder), members, options, files
        )
        for (folder, members), name in zip(groups, names, strict=True)
    ]


def _evaluate_group(
    folder: Path,
    name: str,
    members: Sequence[Path],
    options: argparse.Namespace,
    files: Sequence[Path],
) -> ComparedRun:
    seeds, evaluations = [], []
    for member in members:
        loaded = with_search_options(load(member, options.device), options)
        seeds.append(loaded.recipe.seed)
        evaluations.append(loaded.evaluate(options.split or "dev", files))
    return ComparedRun(
        folder=str(folder),
        name=name,
        parameters=sum(weight.numel() for weight in loaded.model.parameters()),
        vocabulary=loaded.vocabulary.sizes.entries,
        seeds=seeds,
        evaluations=evaluations,
    )


def _record(
    task: str, runs: Sequence[ComparedRun], rows: Sequence[ComparisonRow]
) -> dict[str, object]:
    listed = [
        {"run": run.folder, "seeds": run.seeds, "n": run.n}
        | {"metrics": {name: asdict(value) for name, value in run.metrics.items()}}
        for run in runs
    ]
    differences = [
        {"run": row.run.folder, "against": row.against.folder, "metric": row.metric}
        | asdict(row.difference)
        | {"corrected_p": row.corrected_p}
        for row in rows
        if row.difference is not None
    ]
    counts = {run.n for run in runs}
    n = counts.pop() if len(counts) == 1 else None
    return {"task": task, "n": n, "runs": listed, "differences": differences}


def _print(runs: Sequence[ComparedRun], rows: Sequence[ComparisonRow]) -> None:
    # A column per run: a task may have more metrics than fit side by side.
    figures = [
        (metric_name(key), *(format_estimate(run.metrics.get(key)) for run in runs))
        for key in comparison.metric_keys(runs)
    ]
    counts = [("n", *(str(run.n) for run in runs))]
    if any(len(run.seeds) > 1 for run in runs):
        counts.append(("seeds", *(str(len(run.seeds)) for run in runs)))
    print_table(("metric", *(run.name for run in runs)), [*counts, *figures])
    print_table(comparison.HEADER, [row.cells for row in rows], text_columns=(0, 1, 2, 7))


def _print_pivot(options: argparse.Namespace) -> None:
    """Print a table of one metric by two recipe keys.

    Each run is evaluated on its own split, unless the options name files.
    """
    if options.rows is None or options.columns is None:
        example = "--rows data.train --columns model.encoder.kind"
        given = [f"--{name}" for name in ("rows", "columns", "metric") if getattr(options, name)]
        problem = f"compare: expected both --rows and --columns, got {' and '.join(given)}"
        raise UserError(problem, fix=f"give both, such as {example}")
    files, split = data_files(options), options.split or "dev"
    runs = (  # a generator, so that only one model is in memory at a time
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
        (row, *(format_estimate(figures.get((row, column))) for column in columns))
        for row in dict.fromkeys(cell.row for cell in cells)
    ]
    print_json_or_table(options, record, (options.rows, *columns), rows)
    if not options.json:
        data = "the given data" if files else f"its own {split} split"
        print_note(f"{metric_name(metric)} of each run on {data}, with 95 % intervals")
