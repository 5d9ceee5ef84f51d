"""Do the main job on data that Harken makes itself, and write the report.

A model reads invented biographies, learns from a few questions where people were born, and is asked
about people that it only read about. A second call prints what the first one found.
"""

import argparse
from pathlib import Path

EPILOG = """examples:
  harken demo
  harken demo --run runs/other --seed 1
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken demo`."""
    parser.add_argument("task", nargs="?", default="answer", choices=("answer",), metavar="TASK")
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), metavar="DIR", dest="folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Train three models and print four rows."""
    import signal
    from dataclasses import asdict

    from harken.cli.output import remark, result, result_json, spelled, table, training_progress
    from harken.demo import run_demo
    from harken.pipeline import Interrupted

    try:
        done = run_demo(options.folder, training_progress, seed=options.seed)
    except Interrupted as stop:
        name = signal.Signals(stop.number).name
        remark(f"harken: {name}: saved; the same command goes on from here")
        return 128 + stop.number
    if options.json:
        rows = [{"name": row.name, "n": row.n, **asdict(row.metric)} for row in done.rows]
        result_json({"task": options.task, "rows": rows, "report": str(done.report)})
        return 0
    result("Where was X born? Exact answers about people never asked about in training:")
    table(
        ("", "n", "right", "95 % interval"),
        [(row.name, str(row.n), *spelled(row.metric)) for row in done.rows],
    )
    result(f"report: {done.report}")
    return 0
