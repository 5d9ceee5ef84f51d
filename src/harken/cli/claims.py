"""Execute the statements of the sources: predicted, measured, and whether they hold."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harken.errors import UserError

if TYPE_CHECKING:
    from harken.claims.claim import Claim, ClaimResult, Setting
    from harken.claims.experiments import Experiment
    from harken.run import Run

EPILOG = """examples:
  harken claims                       every statement, in a few seconds
  harken claims --list                the statements with their sources
  harken claims A4 A6 --width 128     two of them, with wider positions
  harken claims --page claims.html    the same with figures
  harken claims B8 --run runs/gpt     how few directions the heads of a run need

exit code 1 where a verdict is not the one that is recorded
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken claims`."""
    parser.add_argument("names", nargs="*", metavar="ID", help="such as A4; all if absent")
    parser.add_argument(
        "--list", action="store_true", help="list the statements and their sources; run nothing"
    )
    parser.add_argument("--width", type=int, default=64, metavar="N", help="d of the formulas")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn")
    parser.add_argument(
        "--run", type=Path, metavar="DIR", dest="folder", help="of B8: look at this trained model"
    )
    parser.add_argument("--page", type=Path, metavar="FILE.html", help="write a page with figures")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print a row for each case; exit code 1 where a verdict is not as recorded."""
    from harken.claims.claim import Setting, select_claims
    from harken.claims.experiments import run_experiments
    from harken.cli.output import remark, result_json
    from harken.files import check_writable, write_text
    from harken.report.claims_page import claims_page

    if options.page is not None:
        check_writable(options.page)
    setting = Setting(width=options.width, seed=options.seed)
    claims = select_claims(options.names)
    if options.list:
        return _list(claims, options.json)
    run = _loaded(options.folder, [one.id for one in claims])
    judged = [claim.evaluate(setting) for claim in claims]
    unexpected = [one for one in judged if not one.as_expected]
    wanted = [one.id for one in claims] if options.page is not None else ["B8"] if run else []
    found = run_experiments(wanted, setting, run)
    if options.json:
        result_json(record(judged, setting, found))
    else:
        _print(judged)
        if run is not None:
            _print_directions(found)
    if options.page is not None:
        write_text(options.page, claims_page(judged, found, setting))
        remark(f"page: {options.page}")
    for one in unexpected:
        remark(f"{one.claim.id}: found {one.verdict!r}, wanted {one.claim.expected!r}")
    return 1 if unexpected else 0


def _list(claims: "Sequence[Claim]", as_json: bool) -> int:
    """Print each claim with the course document that states it."""
    from harken.cli.output import result_json, table

    if as_json:
        fields = ("id", "source", "statement", "formula", "expected")
        listed = [{name: getattr(claim, name) for name in fields} for claim in claims]
        result_json({"claims": listed})
    else:
        rows = [(claim.id, claim.source, claim.statement) for claim in claims]
        table(("id", "source", "statement"), rows, text_columns=(0, 1, 2))
    return 0


def _loaded(folder: Path | None, names: Sequence[str]) -> "Run | None":
    """The run that B8 looks at, if one was named."""
    from harken.run import load

    if folder is None:
        return None
    if "B8" not in names:
        raise UserError(
            f"--run {folder}: found it with {', '.join(names)}, wanted B8 among the claims",
            fix="add B8, or leave out --run",
        )
    return load(folder)


def record(
    judged: Sequence["ClaimResult"], setting: "Setting", found: Sequence["Experiment"] = ()
) -> dict[str, object]:
    """Everything, for a script."""
    return {
        "experiments": [asdict(one) | {"places": list(one.places)} for one in found],
        "width": setting.width,
        "seed": setting.seed,
        "as_expected": all(one.as_expected for one in judged),
        "claims": [
            {
                "id": one.claim.id,
                "source": one.claim.source,
                "statement": one.claim.statement,
                "formula": one.claim.formula,
                "assumption": one.claim.assumption,
                "remark": one.claim.remark,
                "verdict": one.verdict,
                "expected": one.claim.expected,
                "cases": [{**asdict(case), "agrees": case.agrees} for case in one.cases],
            }
            for one in judged
        ],
    }


def _print_directions(found: Sequence["Experiment"]) -> None:
    """B8 of a run, a row for each number of directions."""
    from harken.cli.output import table

    for one in found:
        if one.id == "B8":
            rows = zip(one.places, *one.lines.values(), strict=True)
            shares = [
                (str(place), *(f"{100 * share:.1f} %" for share in row)) for place, *row in rows
            ]
            table(("attention moved, directions kept of W~", *one.lines), shares)


def _print(judged: Sequence["ClaimResult"]) -> None:
    import sys

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD)
    for name in ("id", "statement", "predicted", "measured", "tolerance", "verdict"):
        is_figure = name in ("predicted", "measured", "tolerance")
        drawn.add_column(
            name,
            justify="right" if is_figure else "left",
            overflow="fold",
            no_wrap=is_figure or name == "id",
            max_width=20 if name == "verdict" else None,
        )
    for one in judged:
        verdict = Text(one.verdict)
        if not one.as_expected:
            verdict = Text(f"{one.verdict}, wanted: {one.claim.expected}", style="bold red")
        drawn.add_row(one.claim.id, Text(one.claim.statement), "", "", "", verdict)
        for case in one.cases:
            drawn.add_row(
                "",
                Text(f"  {case.what}", style="dim"),
                figure(case.predicted),
                figure(case.measured),
                figure(case.tolerance),
                Text("agrees" if case.agrees else "differs", style="dim"),
            )
        if one.claim.remark:
            drawn.add_row("", Text(f"  {one.claim.remark}", style="dim italic"), "", "", "", "")
        drawn.add_section()
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    Console(file=sys.stdout, width=120 if piped else None).print(drawn)


def figure(value: float) -> str:
    """To five figures, short where it can be."""
    return f"{value:.5g}"
