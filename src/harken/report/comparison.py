"""Compare runs on the same examples. The first run is the baseline."""

from collections.abc import Sequence
from typing import NamedTuple

from harken.measure.interval import PERCENT_UNITS, format_difference, format_difference_interval
from harken.measure.paired import SIGNIFICANT, Difference, comparable, difference
from harken.report.page import Section, page
from harken.report.run_page import metric_name
from harken.report.tables import ResultRow, plain_table, result_table
from harken.tasks.prediction import Evaluation

HEADER = ("run", "against", "metric", "difference", "95 % interval", "p", "better, p < 0.05")
TABLE_NOTE = (
    "95 % intervals are computed by a paired jackknife over the examples, p by a two-sided "
    "permutation test that swaps the outputs of the two runs at random. The last column names the "
    f"better run if p < {SIGNIFICANT:g}. p is not corrected for multiple comparisons."
)


class ComparedRun(NamedTuple):
    """A run and its evaluation."""

    folder: str  # as the user named it
    name: str  # shortened, unique
    parameters: int
    vocabulary: int  # entries
    seed: int
    evaluation: Evaluation


class ComparisonRow(NamedTuple):
    """The difference of a run from the baseline in one metric."""

    run: ComparedRun
    against: ComparedRun  # the baseline
    metric: str
    difference: Difference | None  # None if the metrics are not comparable

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts of the columns of `HEADER`."""
        names = (self.run.name, self.against.name, metric_name(self.metric))
        if (paired := self.difference) is None:
            return (*names, "not comparable", "–", "–", "–")
        unit = "points" if paired.unit in PERCENT_UNITS else paired.unit
        interval = format_difference_interval(paired.low, paired.high, paired.unit)
        better = {True: self.run.name, False: self.against.name, None: "–"}[paired.improves]
        value = f"{format_difference(paired.value, paired.unit)} {unit}"
        return (*names, value, interval, f"{paired.p:.4f}", better)


def compare_runs(runs: Sequence[ComparedRun]) -> list[ComparisonRow]:
    """Compare every other run with the first run, in every metric that both have."""
    first, *others = runs
    return [
        ComparisonRow(run, first, metric, difference(a, b) if comparable(a, b) else None)
        for run in others
        for metric, a in first.evaluation.samples.items()
        if (b := run.evaluation.samples.get(metric)) is not None
    ]


def metric_keys(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the metrics of all runs, starting with those of the first run."""
    return list(dict.fromkeys(name for run in runs for name in run.evaluation.metrics))


def comparison_page(task: str, runs: Sequence[ComparedRun], rows: Sequence[ComparisonRow]) -> str:
    """Return an HTML page with the differences, the metrics and the runs."""
    counts = " or ".join(f"{count:,}" for count in sorted({run.evaluation.n for run in runs}))
    header = ("run", "folder", "parameters", "vocabulary", "seed")
    listed = [(run.name, run.folder, run.parameters, run.vocabulary, run.seed) for run in runs]
    return page(
        f"{task}: comparison of {len(runs)} runs",
        subtitle=", ".join(run.name for run in runs),
        facts={"task": task, "runs": str(len(runs)), "examples": counts},
        sections=[
            Section("Differences", plain_table(HEADER, [row.cells for row in rows]), TABLE_NOTE),
            *(_metric_section(name, runs) for name in metric_keys(runs)),
            Section("Runs", plain_table(header, listed)),
        ],
    )


def _metric_section(name: str, runs: Sequence[ComparedRun]) -> Section:
    evaluations = {run.name: run.evaluation for run in runs if name in run.evaluation.metrics}
    units = {evaluation.metrics[name].unit for evaluation in evaluations.values()}
    # Notes may differ between runs, for example on the majority answer in training.
    notes = {run: evaluation.notes.get(name, "") for run, evaluation in evaluations.items()}
    differ = len(set(notes.values())) > 1
    rows = [
        ResultRow(run, result.count(name), result.metrics[name], notes[run] if differ else "")
        for run, result in evaluations.items()
    ]
    return Section(
        title=metric_name(name).capitalize(),
        lead="" if differ else next(iter(notes.values())),
        body=result_table(rows, metric=metric_name(name), percent=units <= set(PERCENT_UNITS)),
    )
