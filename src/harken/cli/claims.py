"""Execute the statements of the sources: predicted, measured, and whether they hold."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harken.claims.claim import Judged, Setting

EPILOG = """examples:
  harken claims                       every statement, in a few seconds
  harken claims A4 A6 --width 128     two of them, with wider positions
  harken claims --page claims.html    the same with figures

exit code 1 where a verdict is not the one that is recorded
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken claims`."""
    parser.add_argument("names", nargs="*", metavar="ID", help="such as A4; all if absent")
    parser.add_argument("--width", type=int, default=64, metavar="N", help="d of the formulas")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn")
    parser.add_argument("--page", type=Path, metavar="FILE.html", help="write a page with figures")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print a row for each case; exit code 1 where a verdict is not as recorded."""
    from harken.claims.claim import Setting, judge
    from harken.claims.laboratory import chosen
    from harken.cli.output import remark, result_json

    setting = Setting(width=options.width, seed=options.seed)
    judged = [judge(claim, setting) for claim in chosen(options.names)]
    unexpected = [one for one in judged if not one.as_expected]
    if options.json:
        result_json(record(judged, setting))
    else:
        _print(judged)
    if options.page is not None:
        _write_page(options.page, judged, setting)
    for one in unexpected:
        remark(f"{one.claim.id}: found {one.verdict!r}, wanted {one.claim.expected!r}")
    return 1 if unexpected else 0


def record(judged: Sequence["Judged"], setting: "Setting") -> dict[str, object]:
    """Everything, for a script."""
    return {
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


def _write_page(path: Path, judged: Sequence["Judged"], setting: "Setting") -> None:
    from harken.claims.experiments import experiments
    from harken.cli.output import remark
    from harken.files import write_text
    from harken.report.claims import claims_page

    named = [one.claim.id for one in judged]
    write_text(path, claims_page(judged, experiments(named, setting), setting))
    remark(f"page: {path}")


def _print(judged: Sequence["Judged"]) -> None:
    import sys

    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD)
    for name in ("id", "statement", "predicted", "measured", "tolerance", "verdict"):
        numbers = name in ("predicted", "measured", "tolerance")
        drawn.add_column(
            name,
            justify="right" if numbers else "left",
            overflow="fold",
            max_width=20 if name == "verdict" else None,
        )
    for one in judged:
        verdict: str = one.verdict
        if not one.as_expected:
            verdict = f"[bold red]{verdict}, wanted: {one.claim.expected}[/]"
        drawn.add_row(one.claim.id, escape(one.claim.statement), "", "", "", verdict)
        for case in one.cases:
            drawn.add_row(
                "",
                f"[dim]  {escape(case.what)}[/]",
                figure(case.predicted),
                figure(case.measured),
                figure(case.tolerance),
                "[dim]agrees[/]" if case.agrees else "[dim]differs[/]",
            )
        if one.claim.remark:
            drawn.add_row("", f"[dim italic]  {escape(one.claim.remark)}[/]", "", "", "", "")
        drawn.add_section()
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120).print(drawn)


def figure(value: float) -> str:
    """To five figures, short where it can be."""
    return f"{value:.5g}"
