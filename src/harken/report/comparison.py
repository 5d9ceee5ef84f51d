"""Runs side by side: what each scored on the same examples, and which differences are real.

runs, measured -> one row a metric for each later run against the first -> one HTML page
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harken.measure.interval import SHARES, signed, signed_interval
from harken.measure.paired import SIGNIFICANT, Difference, comparable, difference
from harken.report.page import Section, page
from harken.report.tables import ResultRow, plain_table, result_table
from harken.tasks.prediction import Evaluation
from harken.version import __version__

HEADER = ("run", "against", "metric", "difference", "95 % interval", "p", "better, p < 0.05")
MEANING = (
    "Intervals: 95 %, by leaving out each example in turn for both runs. p: how often runs that "
    "are alike would differ as much, were their outputs exchanged at random. The better run is "
    f"named where p is below {SIGNIFICANT:g}; a p is not corrected for the number of rows."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A run and what it scored."""

    folder: str  # as the user named it
    name: str  # short, and no other run's
    weights: int
    units: int  # of the vocabulary
    seed: int
    evaluation: Evaluation


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One metric of a run against the first; no difference where they are not comparable."""

    run: Compared
    against: Compared
    metric: str
    difference: Difference | None

    @property
    def cells(self) -> tuple[str, ...]:
        """As a person reads them, under `HEADER`."""
        beginning = (self.run.name, self.against.name, words(self.metric))
        found = self.difference
        if found is None:
            return (*beginning, "not comparable", "–", "–", "–")
        name = "points" if found.unit in (*SHARES, "points") else found.unit
        interval = signed_interval(found.low, found.high, found.unit)
        better = {True: self.run.name, False: self.against.name, None: "–"}[found.improves]
        value = f"{signed(found.value, found.unit)} {name}"
        return (*beginning, value, interval, f"{found.p:.4f}", better)


def rows_of(runs: Sequence[Compared]) -> list[Row]:
    """Every later run against the first, in every metric that both have."""
    first, *others = runs
    rows = []
    for run in others:
        for metric, sample in first.evaluation.samples.items():
            other = run.evaluation.samples.get(metric)
            if other is not None:
                paired = difference(sample, other) if comparable(sample, other) else None
                rows.append(Row(run=run, against=first, metric=metric, difference=paired))
    return rows


def metrics_of(runs: Sequence[Compared]) -> list[str]:
    """The metrics of any run, in order; the first decides."""
    return list(dict.fromkeys(name for run in runs for name in run.evaluation.metrics))


def words(name: str) -> str:
    """A metric's name for people."""
    return name.replace("_", " ")


def comparison_page(task: str, runs: Sequence[Compared], rows: Sequence[Row]) -> str:
    """One self-contained HTML document."""
    counts = sorted({run.evaluation.n for run in runs})
    return page(
        f"{task}: {len(runs)} runs compared",
        subtitle=", ".join(run.name for run in runs),
        facts={
            "task": task,
            "runs": str(len(runs)),
            "examples": " or ".join(f"{count:,}" for count in counts),
        },
        sections=[
            Section(
                title="Which is better",
                lead=MEANING,
                body=plain_table(HEADER, [row.cells for row in rows]),
            ),
            *(_metric(name, runs) for name in metrics_of(runs)),
            Section(
                title="The runs",
                body=plain_table(
                    ("run", "folder", "weights", "vocabulary", "seed"),
                    [(run.name, run.folder, run.weights, run.units, run.seed) for run in runs],
                ),
            ),
        ],
        footer=f"Written by Harken {__version__}.",
    )


def _metric(name: str, runs: Sequence[Compared]) -> Section:
    having = [run for run in runs if name in run.evaluation.metrics]
    unit = having[0].evaluation.metrics[name].unit
    # Runs may differ in what a figure means to them, such as the commonest answer in training.
    notes = dict.fromkeys(run.evaluation.notes.get(name, "") for run in having)
    rows = [
        ResultRow(
            name=run.name,
            n=run.evaluation.units(name),
            metric=run.evaluation.metrics[name],
            note=run.evaluation.notes.get(name, "") if len(notes) > 1 else "",
        )
        for run in having
    ]
    return Section(
        title=words(name).capitalize(),
        lead=next(iter(notes)) if len(notes) == 1 else "",
        body=result_table(rows, metric=words(name), percent=unit in SHARES),
    )
