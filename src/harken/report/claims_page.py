"""The page of `harken claims`: a table of verdicts, then a section for each claim."""

from collections.abc import Sequence
from operator import attrgetter

from markupsafe import Markup

from harken.claims.claim import ClaimResult, Setting
from harken.claims.experiments import Experiment
from harken.report.chart import Series, chart
from harken.report.page import Section, page, render
from harken.report.tables import plain_table

_CASE_HEADER = ("case", "predicted", "measured", "tolerance", "agrees")


def claims_page(
    results: Sequence[ClaimResult], experiments: Sequence[Experiment], setting: Setting
) -> str:
    """Return the HTML page of all results; claims with experiments also have figures."""
    verdicts = [result.verdict for result in results]
    rows = [(result.claim.id, result.claim.statement, _verdict(result)) for result in results]
    return page(
        "Claims of the course documents",
        subtitle="Predicted and measured values for every formula.",
        facts={
            "claims": str(len(results)),
            **{verdict: str(verdicts.count(verdict)) for verdict in dict.fromkeys(verdicts)},
            "width": str(setting.width),
            "seed": str(setting.seed),
        },
        sections=[
            Section(title="Verdicts", body=plain_table(("id", "statement", "verdict"), rows)),
            *(_section(result, experiments) for result in results),
        ],
    )


def _verdict(result: ClaimResult) -> str:
    expected = result.claim.expected
    return result.verdict if result.as_expected else f"✗ {result.verdict}, expected: {expected}"


def _section(result: ClaimResult, experiments: Sequence[Experiment]) -> Section:
    claim = result.claim
    cells = attrgetter("name", "predicted", "measured", "tolerance", "agrees")
    matching = [experiment for experiment in experiments if experiment.id == claim.id]
    figures = [(_figure(experiment), experiment.summary) for experiment in matching]
    verdict = _verdict(result).capitalize()
    table = plain_table(_CASE_HEADER, list(map(cells, result.cases)))
    body = render("claim.html", claim=claim, verdict=verdict, figures=figures, cases=table)
    return Section(title=claim.id, lead=claim.statement, body=body)


def _figure(experiment: Experiment) -> Markup:
    lines = experiment.lines.items()
    return chart(
        [Series(name=name, x=experiment.x, y=values) for name, values in lines],
        title=experiment.title,
        x_label=experiment.x_label,
        y_label=experiment.y_label,
        log_y=experiment.log_y,
    )
