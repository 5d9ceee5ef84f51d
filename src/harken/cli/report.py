"""`harken report`: evaluate the dev split and write the page."""

import argparse

from harken.cli.output import result
from harken.files import write_text
from harken.report.run_page import run_report
from harken.run import REPORT, load


def run(options: argparse.Namespace) -> None:
    """Write the page and print its path."""
    loaded = load(options.folder)
    path = options.out or options.folder / REPORT
    write_text(path, run_report(loaded, loaded.evaluate()))
    result(str(path))
