"""Measure a trained run on a split of its recipe or on another file."""

import argparse
from pathlib import Path

EPILOG = """examples:
  harken evaluate runs/demo
  harken evaluate runs/demo --split test --json
  harken evaluate runs/demo --data more-questions.tsv
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken evaluate`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--split", choices=("dev", "test"), default="dev")
    which.add_argument("--data", type=Path, metavar="PATH", help="a file of the task's own form")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print every metric with its interval."""
    from harken.cli.output import figures
    from harken.pipeline import metrics_record
    from harken.run import load

    loaded = load(options.folder, options.device)
    evaluation = loaded.evaluate(options.split, [options.data] if options.data else [])
    figures(metrics_record(loaded, evaluation), as_json=options.json)
    return 0
