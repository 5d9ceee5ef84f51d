"""The page of `harken claims`: verdicts, figures, then every claim with its numbers."""

from collections.abc import Sequence

from markupsafe import Markup

from harken.claims.claim import Judged, Setting
from harken.claims.experiments import Experiment
from harken.report.chart import Series, chart
from harken.report.page import Section, page, render
from harken.report.tables import plain_table

CASES = ("case", "predicted", "measured", "tolerance", "agrees")


def claims_page(
    judged: Sequence[Judged], experiments: Sequence[Experiment], setting: Setting
) -> str:
    """Return one self-contained HTML document."""
    verdicts = [result.verdict for result in judged]
    rows = [(result.claim.id, result.claim.statement, _verdict(result)) for result in judged]
    return page(
        "Claims of the sources",
        subtitle="Each statement with a formula: the predicted and the measured values.",
        facts={
            "statements": str(len(judged)),
            **{verdict: str(verdicts.count(verdict)) for verdict in dict.fromkeys(verdicts)},
            "width": str(setting.width),
            "seed": str(setting.seed),
        },
        sections=[
            Section(title="Verdicts", body=plain_table(("id", "statement", "verdict"), rows)),
            *(_section(result, experiments) for result in judged),
        ],
    )


def _verdict(result: Judged) -> str:
    expected = result.claim.expected
    return result.verdict if result.as_expected else f"✗ {result.verdict}, expected: {expected}"


def _section(result: Judged, experiments: Sequence[Experiment]) -> Section:
    cases = [
        (case.what, case.predicted, case.measured, case.tolerance, case.agrees)
        for case in result.cases
    ]
    body = render(
        "claim.html",
        claim=result.claim,
        verdict=_verdict(result).capitalize(),
        figures=[(_figure(e), e.seen) for e in experiments if e.id == result.claim.id],
        cases=plain_table(CASES, cases),
    )
    return Section(title=result.claim.id, lead=result.claim.statement, body=body)


def _figure(experiment: Experiment) -> Markup:
    lines = experiment.lines.items()
    return chart(
        [Series(name=name, x=experiment.places, y=values) for name, values in lines],
        title=experiment.title,
        x_label=experiment.x_label,
        y_label=experiment.y_label,
        log_y=experiment.log_y,
    )
