"""`harken claims`: print predicted and measured figures and the verdict of every claim."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from harken.claims.claim import ClaimResult, Setting, select_claims
from harken.claims.experiments import Experiment, run_experiments
from harken.cli.output import print_json, print_json_or_table, print_note, print_table
from harken.errors import UserError
from harken.files import check_writable, write_text
from harken.report.claims_page import claims_page
from harken.run import load


def run(options: argparse.Namespace) -> int:
    """Print a row for each case, and return 1 if a verdict is not the expected one."""
    if options.page is not None:
        check_writable(options.page)
    setting = Setting(width=options.width, seed=options.seed)
    claims = select_claims(options.names)
    if options.list:
        fields = ("id", "source", "statement", "formula", "expected")
        listed = [{name: getattr(claim, name) for name in fields} for claim in claims]
        rows = [(claim.id, claim.source, claim.statement) for claim in claims]
        print_json_or_table(options, {"claims": listed}, fields[:3], rows, text_columns=(0, 1, 2))
        return 0
    names = [claim.id for claim in claims]
    if options.folder is not None and "B8" not in names:
        problem = f"--run {options.folder}: expected B8 among the claims, got {', '.join(names)}"
        raise UserError(problem, fix="add B8, or leave out --run")
    loaded = None if options.folder is None else load(options.folder)
    results = [claim.evaluate(setting) for claim in claims]
    if options.page is not None:
        experiments = run_experiments(names, setting, loaded)  # the charts of the page
    else:
        experiments = run_experiments(["B8"], setting, loaded) if loaded is not None else []
    if options.json:
        print_json(_record(results, setting, experiments))
    else:
        _print(results)
        if loaded is not None:
            _print_ranks(next(result for result in experiments if result.id == "B8"))
    if options.page is not None:
        write_text(options.page, claims_page(results, experiments, setting))
        print_note(f"page: {options.page}")
    unexpected = [result for result in results if not result.as_expected]
    for result in unexpected:
        print_note(f"{result.claim.id}: expected {result.claim.expected!r}, got {result.verdict!r}")
    return 1 if unexpected else 0


def _record(
    results: Sequence[ClaimResult], setting: Setting, experiments: Sequence[Experiment]
) -> dict[str, object]:
    """Return the JSON object of all claims."""
    keys = ("id", "source", "statement", "formula", "assumption", "remark", "expected")
    claims = []
    for result in results:
        cases = [{**asdict(case), "agrees": case.agrees} for case in result.cases]
        fields = {key: getattr(result.claim, key) for key in keys}
        claims.append({**fields, "verdict": result.verdict, "cases": cases})
    return {
        # `x` may be a range, which JSON cannot represent.
        "experiments": [asdict(result) | {"x": list(result.x)} for result in experiments],
        "width": setting.width,
        "seed": setting.seed,
        "as_expected": all(result.as_expected for result in results),
        "claims": claims,
    }


def _print_ranks(experiment: Experiment) -> None:
    """Print the share of attention that changes if W~ = W_Q^T W_K is truncated (claim B8)."""
    rows = [
        (str(rank), *(f"{100 * share:.1f} %" for share in shares))
        for rank, *shares in zip(experiment.x, *experiment.lines.values(), strict=True)
    ]
    print_table(("rank of W_Q^T W_K (share of attention changed)", *experiment.lines), rows)


def _print(results: Sequence[ClaimResult]) -> None:
    rows: list[tuple[str, ...]] = []
    for result in results:
        claim = result.claim
        expected = "" if result.as_expected else f", expected: {claim.expected}"
        rows.append((claim.id, claim.statement, "", "", "", result.verdict + expected))
        for case in result.cases:
            numbers = (case.predicted, case.measured, case.tolerance)
            figures = (f"{number:.5g}" for number in numbers)
            rows.append(("", f"  {case.name}", *figures, "agrees" if case.agrees else "differs"))
        if claim.remark:
            rows.append(("", f"  {claim.remark}", "", "", "", ""))
    header = ("id", "statement", "predicted", "measured", "tolerance", "verdict")
    print_table(header, rows, text_columns=(0, 1, 5), pipe_width=120)
