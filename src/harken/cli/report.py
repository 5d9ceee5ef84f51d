"""Write a run's report again: one HTML page, with pictures, that needs no network."""

import argparse
from pathlib import Path

EPILOG = """examples:
  harken report runs/demo
  harken report runs/demo --out page.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken report`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, metavar="FILE", help="report.html of the run if absent")


def run(options: argparse.Namespace) -> int:
    """Measure the dev split and draw the page."""
    from harken.cli.output import result
    from harken.files import write_text
    from harken.report.run_page import run_report
    from harken.run import REPORT, load

    loaded = load(options.folder)
    target = options.out or options.folder / REPORT
    write_text(target, run_report(loaded, loaded.evaluate()))
    result(str(target))
    return 0
