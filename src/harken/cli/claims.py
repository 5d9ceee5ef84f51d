"""`harken claims`: print predicted and measured figures and the verdict of every claim."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from harken.claims.claim import Claim, ClaimResult, Setting, select_claims
from harken.claims.experiments import Experiment, run_experiments
from harken.cli.output import remark, result_json, table
from harken.errors import UserError
from harken.files import check_writable, write_text
from harken.report.claims_page import claims_page
from harken.run import Run, load


def run(options: argparse.Namespace) -> int:
    """Print a row for each case; the exit code is 1 if a verdict differs from the recorded one."""
    if options.page is not None:
        check_writable(options.page)
    setting = Setting(width=options.width, seed=options.seed)
    claims = select_claims(options.names)
    if options.list:
        return _list(claims, options.json)
    names = [claim.id for claim in claims]
    loaded = _load(options.folder, names)
    judged = [claim.evaluate(setting) for claim in claims]
    if options.page is None:
        names = ["B8"] if loaded else []
    results = run_experiments(names, setting, loaded)
    if options.json:
        result_json(record(judged, setting, results))
    else:
        _print(judged)
        if loaded is not None:
            _print_directions(results)
    if options.page is not None:
        write_text(options.page, claims_page(judged, results, setting))
        remark(f"page: {options.page}")
    unexpected = [verdict for verdict in judged if not verdict.as_expected]
    for verdict in unexpected:
        remark(f"{verdict.claim.id}: expected {verdict.claim.expected!r}, got {verdict.verdict!r}")
    return 1 if unexpected else 0


def _list(claims: Sequence[Claim], as_json: bool) -> int:
    """Print each claim with the course document that states it."""
    if as_json:
        fields = ("id", "source", "statement", "formula", "expected")
        listed = [{name: getattr(claim, name) for name in fields} for claim in claims]
        result_json({"claims": listed})
    else:
        rows = [(claim.id, claim.source, claim.statement) for claim in claims]
        table(("id", "source", "statement"), rows, text_columns=(0, 1, 2))
    return 0


def _load(folder: Path | None, names: Sequence[str]) -> Run | None:
    if folder is None:
        return None
    if "B8" not in names:
        raise UserError(
            f"--run {folder}: expected B8 among the claims, got {', '.join(names)}",
            fix="add B8, or leave out --run",
        )
    return load(folder)


def record(
    judged: Sequence[ClaimResult], setting: Setting, results: Sequence[Experiment] = ()
) -> dict[str, object]:
    """Return the JSON object of all claims."""
    keys = ("id", "source", "statement", "formula", "assumption", "remark", "expected")
    return {
        "experiments": [asdict(result) | {"places": list(result.places)} for result in results],
        "width": setting.width,
        "seed": setting.seed,
        "as_expected": all(verdict.as_expected for verdict in judged),
        "claims": [
            {
                **{key: getattr(verdict.claim, key) for key in keys},
                "verdict": verdict.verdict,
                "cases": [{**asdict(case), "agrees": case.agrees} for case in verdict.cases],
            }
            for verdict in judged
        ],
    }


def _print_directions(results: Sequence[Experiment]) -> None:
    """Print B8 of a run, a row for each number of directions."""
    for result in results:
        if result.id == "B8":
            rows = zip(result.places, *result.lines.values(), strict=True)
            shares = [
                (str(place), *(f"{100 * share:.1f} %" for share in row)) for place, *row in rows
            ]
            table(("attention moved, directions kept of W~", *result.lines), shares)


def _print(judged: Sequence[ClaimResult]) -> None:
    rows: list[tuple[str, ...]] = []
    for verdict in judged:
        claim = verdict.claim
        expected = "" if verdict.as_expected else f", expected: {claim.expected}"
        text = verdict.verdict + expected
        rows.append((claim.id, claim.statement, "", "", "", text))
        for case in verdict.cases:
            figures = (f"{x:.5g}" for x in (case.predicted, case.measured, case.tolerance))
            rows.append(("", f"  {case.what}", *figures, "agrees" if case.agrees else "differs"))
        if claim.remark:
            rows.append(("", f"  {claim.remark}", "", "", "", ""))
    header = ("id", "statement", "predicted", "measured", "tolerance", "verdict")
    table(header, rows, text_columns=(0, 1, 5), pipe_width=120)
