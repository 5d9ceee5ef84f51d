"""Train and evaluate a question answering model on generated data, and write the report.

The model reads generated biographies, learns from a few questions where people were born, and
answers questions about people that it only read about. A second call prints the results again.
"""

import argparse
from pathlib import Path

from harken.errors import UserError

FOLDER = Path("runs/demo")
EPILOG = """examples:
  harken demo
  harken demo --run runs/other --seed 1
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken demo`."""
    parser.add_argument("task", nargs="?", default="answer", choices=("answer",), metavar="TASK")
    parser.add_argument(
        "--run", type=Path, default=FOLDER, metavar="DIR", dest="folder", help=str(FOLDER)
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Train what is not trained yet and print the rows."""
    from harken.cli.output import remark
    from harken.training.signals import Interrupted

    folder: Path = options.folder
    if options.seed < 0:
        raise UserError(
            f"--seed: found {options.seed}, wanted a number from 0 on", fix="leave out its sign"
        )
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: expected a folder, got a file", fix="choose another --run")
    try:
        _answer(folder, options)
    except Interrupted as stop:
        remark(f"harken: {stop}; run the same command again to resume")
        return 128 + stop.number
    return 0


def _answer(folder: Path, options: argparse.Namespace) -> None:
    from dataclasses import asdict

    from harken.cli.output import result, result_json, spelled, table
    from harken.demo.reading import run_demo
    from harken.training.progress import training_progress

    done = run_demo(folder, training_progress, seed=options.seed)
    if options.json:
        rows = [{"name": row.name, "n": row.n, **asdict(row.metric)} for row in done.rows]
        result_json({"task": options.task, "rows": rows, "report": str(done.report)})
        return
    result("Where was X born? Exact match on people without training questions:")
    table(
        ("", "n", "right", "95 % interval"),
        [(row.name, str(row.n), *spelled(row.metric)) for row in done.rows],
    )
    result(f"report: {done.report}")
