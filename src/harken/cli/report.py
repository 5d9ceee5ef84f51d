"""`harken report`: evaluate a run on its dev split and write the report."""

import argparse

from harken.cli.output import print_result
from harken.files import write_text
from harken.report.run_page import run_report
from harken.run import load
from harken.run_folder import REPORT


def run(options: argparse.Namespace) -> None:
    """Write the page and print its path."""
    loaded = load(options.folder)
    path = options.out or options.folder / REPORT
    write_text(path, run_report(loaded, loaded.evaluate()))
    print_result(str(path))
