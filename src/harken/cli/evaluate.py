"""Measure a trained run on a split of its recipe or on other files."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harken.cli.searching import add_search_options
from harken.errors import UserError

if TYPE_CHECKING:
    from harken.run import Run
    from harken.tasks.prediction import Evaluation

EPILOG = """examples:
  harken evaluate runs/demo
  harken evaluate runs/demo --split test --beam 8 --json
  harken evaluate runs/demo --data more-questions.tsv
  harken evaluate runs/translate --source test.en --target test.de
  harken evaluate runs/speech --split test --by ctc --beam 8
  harken evaluate runs/speech --condition noise:10 --condition reverb:0.4 --condition talker:5

conditions, of a recogniser, each applied to clean sound:
  quiet, noise:DB, pink:DB, babble:DB and talker:DB below the speech, reverb:SECONDS,
  references:SHARE of faulty words
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken evaluate`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("--split", choices=("dev", "test"), help="of the recipe; dev if absent")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a file of the task's own form")
    parser.add_argument("--source", type=Path, metavar="PATH", help="sentences, one a line")
    parser.add_argument("--target", type=Path, metavar="PATH", help="their translations")
    add_search_options(parser, ("beam", "by", "ctc_weight"))
    parser.add_argument(
        "--condition", action="append", default=[], metavar="KIND:AMOUNT", help="repeatable"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print every metric with its interval."""
    from harken.cli.output import figures, remark, result_json
    from harken.cli.searching import searched
    from harken.pipeline import metrics_record
    from harken.run import load

    files = files_of(options)
    loaded = searched(load(options.folder, options.device), options)
    _check_conditions(loaded, options.condition)
    clean = loaded.evaluate(options.split or "dev", files)
    truncated = [one.truncation for one in clean.predictions if one.truncation is not None]
    if truncated:
        remark(
            f"{len(truncated)} of {clean.n} inputs are longer than the model reads; "
            f"the first of them: {truncated[0]}"
        )
    record = metrics_record(loaded, clean)
    if not options.condition:
        figures(record, as_json=options.json)
        return 0
    under = {
        name: loaded.evaluate(options.split or "dev", files, name) for name in options.condition
    }
    if options.json:
        conditions = {name: metrics_record(loaded, one)["metrics"] for name, one in under.items()}
        result_json({**record, "conditions": conditions})
        return 0
    figures(record, as_json=False)
    _by_condition({"as it is": clean, **under})
    return 0


def _check_conditions(loaded: "Run", conditions: list[str]) -> None:
    """A misspelt condition is told before anything is measured."""
    from harken.augment.conditions import parse_condition

    if conditions and loaded.task.inputs != "sounds":
        raise UserError(
            f"--condition: found a run of task {loaded.recipe.task!r}, wanted a recogniser",
            fix="leave out --condition",
        )
    for text in conditions:
        parse_condition(text)


def _by_condition(under: Mapping[str, "Evaluation"]) -> None:
    """One row a condition, one column an error that a person compares."""
    from harken.cli.output import spelled_together, table

    columns = ("wer", "cer")
    table(
        ("condition", *columns),
        [
            (name, *(spelled_together(one.metrics[column]) for column in columns))
            for name, one in under.items()
        ],
    )


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
