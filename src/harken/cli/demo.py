"""`harken demo`: train and evaluate a question answering model on generated data."""

import argparse
from dataclasses import asdict
from pathlib import Path

from harken.cli.output import estimate_cells, print_json, print_note, print_result, print_table
from harken.demo import run_demo
from harken.errors import UserError
from harken.training.progress import training_progress
from harken.training.signals import Interrupted


def run(options: argparse.Namespace) -> int:
    """Train the models, or resume or load those of an earlier call, and print the results."""
    folder: Path = options.folder
    if folder.exists() and not folder.is_dir():
        problem = f"{folder}: expected a folder, got a file"
        raise UserError(problem, fix="choose a folder with --run")
    try:
        demo = run_demo(folder, training_progress, seed=options.seed)
    except Interrupted as stop:
        print_note(f"harken: {stop}; run the same command again to resume")
        return 128 + stop.number
    if options.json:
        rows = [{"name": row.name, "n": row.n, **asdict(row.metric)} for row in demo.rows]
        print_json({"task": options.task, "rows": rows, "report": str(demo.report)})
    else:
        print_result("Where was X born? Exact match on people without training questions:")
        cells = [(row.name, str(row.n), *estimate_cells(row.metric)) for row in demo.rows]
        print_table(("", "n", "exact match", "95 % interval"), cells)
        print_result(f"report: {demo.report}")
    return 0
