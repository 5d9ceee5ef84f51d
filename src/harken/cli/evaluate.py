"""Measure a trained run on a split of its recipe or on other files."""

import argparse
from pathlib import Path

from harken.cli.searching import add_search_options
from harken.errors import UserError

EPILOG = """examples:
  harken evaluate runs/demo
  harken evaluate runs/demo --split test --beam 8 --json
  harken evaluate runs/demo --data more-questions.tsv
  harken evaluate runs/translate --source test.en --target test.de
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken evaluate`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("--split", choices=("dev", "test"), help="of the recipe; dev if absent")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a file of the task's own form")
    parser.add_argument("--source", type=Path, metavar="PATH", help="sentences, one a line")
    parser.add_argument("--target", type=Path, metavar="PATH", help="their translations")
    add_search_options(parser, ("beam",))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print every metric with its interval."""
    from harken.cli.output import figures
    from harken.cli.searching import searched
    from harken.pipeline import metrics_record
    from harken.run import load

    files = files_of(options)
    loaded = searched(load(options.folder, options.device), options)
    evaluation = loaded.evaluate(options.split or "dev", files)
    figures(metrics_record(loaded, evaluation), as_json=options.json)
    return 0


def files_of(options: argparse.Namespace) -> list[Path]:
    """The files to measure on, none for a split of the recipe."""
    given = [name for name in ("split", "data", "source", "target") if getattr(options, name)]
    if given in ([], ["split"]):
        return []
    if given == ["data"]:
        return [options.data]
    if given == ["source", "target"]:
        return [options.source, options.target]
    raise UserError(
        f"found {' and '.join(f'--{name}' for name in given)}, wanted one thing to measure on",
        fix="use --split, or --data, or --source together with --target",
    )
