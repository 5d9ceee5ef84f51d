"""Do a whole experiment on data that Harken makes itself, and write the report.

    answer     the main job: a model reads invented biographies, learns from a few questions where
               people were born, and is asked about people that it only read about
    exposure   the same against how often and how variously people were told of

A second call prints what the first one found.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from harken.errors import UserError

if TYPE_CHECKING:
    from harken.measure.interval import Estimate

FOLDERS = {"answer": Path("runs/demo"), "exposure": Path("runs/exposure")}
EPILOG = """tasks:
  answer      read, then answer: four rows, a few minutes (this one if none is named)
  exposure    number, words and order of the biographies: seven rows and a figure, ten minutes

examples:
  harken demo
  harken demo --run runs/other --seed 1
  harken demo exposure --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken demo`."""
    parser.add_argument("task", nargs="?", default="answer", choices=FOLDERS, metavar="TASK")
    named = " or ".join(map(str, FOLDERS.values()))
    parser.add_argument(
        "--run", type=Path, metavar="DIR", dest="folder", help=f"{named}, if none is named"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Train what is not trained yet and print the rows."""
    from harken.cli.output import remark
    from harken.training.signals import Interrupted

    if options.seed < 0:
        raise UserError(
            f"--seed: found {options.seed}, wanted a number from 0 on", fix="leave out its sign"
        )
    folder = options.folder or FOLDERS[options.task]
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: expected a folder, got a file", fix="choose another --run")
    try:
        (_exposure if options.task == "exposure" else _answer)(folder, options)
    except Interrupted as stop:
        remark(f"harken: {stop}; run the same command again to resume")
        return 128 + stop.number
    return 0


def _answer(folder: Path, options: argparse.Namespace) -> None:
    from dataclasses import asdict

    from harken.cli.output import result, result_json
    from harken.demo.reading import run_demo
    from harken.training.progress import training_progress

    done = run_demo(folder, training_progress, seed=options.seed)
    if options.json:
        rows = [{"name": row.name, "n": row.n, **asdict(row.metric)} for row in done.rows]
        result_json({"task": options.task, "rows": rows, "report": str(done.report)})
        return
    result("Where was X born? Exact answers about people never asked about in training:")
    _table([(row.name, row.n, row.metric) for row in done.rows])
    result(f"report: {done.report}")


def _exposure(folder: Path, options: argparse.Namespace) -> None:
    from dataclasses import asdict

    from harken.cli.output import result, result_json
    from harken.demo.exposure import run_exposure
    from harken.training.progress import training_progress

    done = run_exposure(folder, training_progress, seed=options.seed)
    if options.json:
        rows = [
            {
                "name": row.condition.name,
                **asdict(row.condition),
                "n": row.n,
                **asdict(row.metric),
            }
            for row in done.rows
        ]
        result_json(
            {
                "task": options.task,
                "seed": options.seed,
                "rows": rows,
                "commonest_answer": asdict(done.commonest),
                "report": str(done.report),
            }
        )
        return
    result("Where was X born? Exact answers about people never asked about, by what was read:")
    guess = ("commonest place", done.rows[0].n, done.commonest)
    _table([guess, *((row.condition.name, row.n, row.metric) for row in done.rows)])
    result(f"report: {done.report}")


def _table(rows: "list[tuple[str, int, Estimate]]") -> None:
    from harken.cli.output import spelled, table

    table(
        ("", "n", "right", "95 % interval"),
        [(name, str(n), *spelled(metric)) for name, n, metric in rows],
    )
