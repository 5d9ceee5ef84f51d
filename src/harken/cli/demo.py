"""`harken demo`: train and evaluate a question answering model on generated data."""

import argparse
from dataclasses import asdict
from pathlib import Path

from harken.cli.output import print_note, result, result_json, table, value_and_interval
from harken.demo import run_demo
from harken.errors import UserError
from harken.training.progress import training_progress
from harken.training.signals import Interrupted


def run(options: argparse.Namespace) -> int:
    """Train unless it is done already, and print the results."""
    folder: Path = options.folder
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: expected a folder, got a file", fix="choose another --run")
    try:
        demo = run_demo(folder, training_progress, seed=options.seed)
    except Interrupted as stop:
        print_note(f"harken: {stop}; run the same command again to resume")
        return 128 + stop.number
    if options.json:
        rows = [{"name": row.name, "n": row.n, **asdict(row.metric)} for row in demo.rows]
        result_json({"task": options.task, "rows": rows, "report": str(demo.report)})
    else:
        result("Where was X born? Exact match on people without training questions:")
        cells = [(row.name, str(row.n), *value_and_interval(row.metric)) for row in demo.rows]
        table(("", "n", "exact match", "95 % interval"), cells)
        result(f"report: {demo.report}")
    return 0
