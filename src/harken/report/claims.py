"""The page of `harken claims`: verdicts, figures, then every claim with its numbers."""

from collections.abc import Sequence

from harken.claims.claim import Judged, Setting
from harken.claims.experiments import Experiment
from harken.report.curves import Curve, curve_figure
from harken.report.markup import text
from harken.report.page import Section, page
from harken.report.tables import plain_table
from harken.version import __version__

CASES = ("case", "predicted", "measured", "tolerance", "agrees")


def claims_page(
    judged: Sequence[Judged], experiments: Sequence[Experiment], setting: Setting
) -> str:
    """One self-contained HTML document."""
    verdicts = [one.verdict for one in judged]
    return page(
        "The sources, executed",
        subtitle="Every statement with a formula: predicted by it, measured in the library.",
        facts={
            "statements": str(len(judged)),
            **{verdict: str(verdicts.count(verdict)) for verdict in dict.fromkeys(verdicts)},
            "width": str(setting.width),
            "seed": str(setting.seed),
        },
        sections=[
            Section(title="Verdicts", body=_verdicts(judged)),
            *(_claim(one, experiments) for one in judged),
        ],
        footer=f"Written by Harken {__version__}.",
    )


def _verdicts(judged: Sequence[Judged]) -> str:
    return plain_table(
        ("id", "statement", "verdict"),
        [(one.claim.id, one.claim.statement, _verdict(one)) for one in judged],
    )


def _verdict(one: Judged) -> str:
    return one.verdict if one.as_expected else f"✗ {one.verdict}, wanted: {one.claim.expected}"


def _claim(one: Judged, experiments: Sequence[Experiment]) -> Section:
    figures = "".join(_figure(found) for found in experiments if found.id == one.claim.id)
    cases = plain_table(
        CASES,
        [
            (case.what, case.predicted, case.measured, case.tolerance, case.agrees)
            for case in one.cases
        ],
    )
    return Section(
        title=one.claim.id,
        lead=one.claim.statement,
        body=_words(one) + figures + cases,
    )


def _words(one: Judged) -> str:
    claim = one.claim
    remark = f" {text(claim.remark)}" if claim.remark else ""
    return (
        f"<p><strong>{text(_verdict(one).capitalize())}.</strong>{remark}</p>"
        f"<p><code>{text(claim.formula)}</code></p>"
        f'<p class="muted">From the {text(claim.source)}. Assumed: {text(claim.assumption)}.</p>'
    )


def _figure(found: Experiment) -> str:
    drawn = curve_figure(
        [
            Curve(name=name, steps=found.places, values=values)
            for name, values in found.lines.items()
        ],
        title=found.title,
        x_label=found.x_label,
        y_label=found.y_label,
        log_y=found.log_y,
    )
    return f"{drawn}<p>{text(found.seen)}</p>"
