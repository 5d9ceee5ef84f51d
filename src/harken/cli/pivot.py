"""Runs as a table of one figure: a row for each value of one key of their recipes, a column for
each of another.

    harken compare runs/*/ --rows data.train --columns model.encoder.kind --split test

is the lecture's table of corpora against Transformer and Conformer. Each run is measured on its own
data, so cells of one row are compared fairly where they share it, and nothing is tested.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harken.cli.evaluate import files_of
from harken.errors import UserError

if TYPE_CHECKING:
    from harken.measure.interval import Estimate


class Cell(NamedTuple):
    """A run, where it stands, and its figure."""

    row: str
    column: str
    run: str
    n: int
    figure: "Estimate"


def add_pivot_options(parser: argparse.ArgumentParser) -> None:
    """Both keys or neither."""
    parser.add_argument("--rows", metavar="KEY", help="a table: rows by this key of the recipes")
    parser.add_argument("--columns", metavar="KEY", help="its columns, e.g. model.encoder.kind")
    parser.add_argument("--metric", metavar="NAME", help="its figure; the first if absent")


def pivot(options: argparse.Namespace) -> int:
    """Measure every run on its own split, and print the table."""
    from harken.cli.output import remark, result_json, spelled_together, table

    if options.rows is None or options.columns is None:
        raise UserError(
            "compare: found --rows, --columns or --metric alone, wanted rows and columns",
            fix="give both keys, such as --rows data.train --columns model.encoder.kind",
        )
    cells, metric = _measured(options)
    rows, columns = (list(dict.fromkeys(names)) for names in list(zip(*cells, strict=True))[:2])
    if options.json:
        result_json(
            {
                "rows": options.rows,
                "columns": options.columns,
                "metric": metric,
                "cells": [{**one._asdict(), "figure": asdict(one.figure)} for one in cells],
            }
        )
        return 0
    printed = {(one.row, one.column): spelled_together(one.figure) for one in cells}
    table(
        (options.rows, *columns),
        [(row, *(printed.get((row, column), "–") for column in columns)) for row in rows],
    )
    remark(f"{metric.replace('_', ' ')}, with 95 % intervals; each run on its own data")
    return 0


def _measured(options: argparse.Namespace) -> tuple[list[Cell], str]:
    from harken.cli.searching import searched
    from harken.config import as_plain
    from harken.run import load

    files = files_of(options)
    cells: dict[tuple[str, str], Cell] = {}
    metric: str | None = options.metric
    for folder in options.folders:
        loaded = searched(load(folder, options.device), options)
        plain = as_plain(loaded.recipe)
        row, column = (_value(plain, key, folder) for key in (options.rows, options.columns))
        if (row, column) in cells:
            raise UserError(
                f"{folder}: found {row} and {column} as in {cells[row, column].run}, wanted one "
                "run for each cell",
                fix="leave one out, or choose other keys",
            )
        evaluation = loaded.evaluate(options.split or "dev", files)
        metric = metric or next(iter(evaluation.metrics))
        if metric not in evaluation.metrics:
            raise UserError(
                f"--metric: found {metric!r}, wanted one of {', '.join(evaluation.metrics)}",
                fix="choose one that every run has",
            )
        figure = evaluation.metrics[metric]
        cells[row, column] = Cell(row, column, str(folder), evaluation.n, figure)
    assert metric is not None, "there is at least one run"
    return list(cells.values()), metric


def _value(plain: Any, key: str, folder: Path) -> str:
    """What a recipe says to a key; of a file, its folder, which names the corpus."""
    found = plain
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            known: Sequence[str] = list(found) if isinstance(found, dict) else []
            raise UserError(
                f"{folder}: found no key {key!r} in its recipe, wanted one",
                fix=f"there is {', '.join(known)}" if known else "name a key above it",
            )
        found = found[part]
    return Path(found).parent.name if key.startswith("data.") else str(found)
