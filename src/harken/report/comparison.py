"""Compare runs, or groups of seeds, on the same examples. The first is the baseline."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from harken.measure.interval import (
    PERCENT_UNITS,
    Estimate,
    format_difference,
    format_difference_interval,
    metric_name,
    metric_title,
)
from harken.measure.paired import SIGNIFICANT, Difference, holm
from harken.measure.seed_means import group_comparable, group_difference, mean_estimates
from harken.report.page import Section, page
from harken.report.tables import ResultRow, plain_table, result_table
from harken.tasks.prediction import Evaluation

HEADER = (
    "run",
    "against",
    "metric",
    "difference",
    "95 % interval",
    "p",
    "corrected p",
    f"better, corrected p < {SIGNIFICANT:g}",
)
TABLE_NOTE = (
    "95 % intervals are computed by a paired jackknife over the examples, p by a two-sided "
    "permutation test that swaps the outputs of the two runs at random. The metric of a group of "
    "seeds is the mean over its seeds; its intervals and p (t test) are over seeds and examples. "
    "The corrected p is that of Holm over the comparisons in the same metric. The last column "
    f"names the better run if the corrected p < {SIGNIFICANT:g}."
)


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run, or a group of seeds, and the evaluation of each seed."""

    folder: str  # as the user named it
    name: str  # shortened, unique
    parameters: int
    vocabulary: int  # entries
    seeds: Sequence[int]
    evaluations: Sequence[Evaluation]

    @property
    def n(self) -> int:
        return self.evaluations[0].n

    @cached_property
    def metrics(self) -> Mapping[str, Estimate]:
        """The metrics of the run, or their means over the seeds."""
        if len(self.evaluations) == 1:
            return self.evaluations[0].metrics
        return mean_estimates([evaluation.samples for evaluation in self.evaluations])


class ComparisonRow(NamedTuple):
    """The difference of a run from the baseline in one metric."""

    run: ComparedRun
    against: ComparedRun  # the baseline
    metric: str
    difference: Difference | None = None  # None if the metrics are not comparable
    corrected_p: float = 1.0  # by `holm`

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts of the columns of `HEADER`."""
        names = (self.run.name, self.against.name, metric_name(self.metric))
        if (paired := self.difference) is None:
            return (*names, "not comparable", "–", "–", "–", "–")
        unit = "points" if paired.unit in PERCENT_UNITS else paired.unit
        interval = format_difference_interval(paired.low, paired.high, paired.unit)
        improves = paired.improves if self.corrected_p < SIGNIFICANT else None
        better = {True: self.run.name, False: self.against.name, None: "–"}[improves]
        value = f"{format_difference(paired.value, paired.unit)} {unit}"
        return (*names, value, interval, f"{paired.p:.4f}", f"{self.corrected_p:.4f}", better)


def compare_runs(runs: Sequence[ComparedRun]) -> list[ComparisonRow]:
    """Compare every other run with the first run, in every metric that both have."""
    first, *others = runs
    rows = [
        ComparisonRow(run, first, metric, _difference(first, run, metric))
        for run in others
        for metric in first.metrics
        if metric in run.metrics
    ]
    p_values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.difference is not None:
            p_values[row.metric].append(row.difference.p)
    corrected = {metric: iter(holm(values)) for metric, values in p_values.items()}
    return [
        row._replace(corrected_p=next(corrected[row.metric])) if row.difference is not None else row
        for row in rows
    ]


def _difference(first: ComparedRun, second: ComparedRun, metric: str) -> Difference | None:
    groups = [
        [evaluation.samples[metric] for evaluation in run.evaluations] for run in (first, second)
    ]
    return group_difference(*groups) if group_comparable(*groups) else None


def metric_keys(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the metrics of all runs, starting with those of the first run."""
    return list(dict.fromkeys(name for run in runs for name in run.metrics))


def comparison_page(task: str, runs: Sequence[ComparedRun], rows: Sequence[ComparisonRow]) -> str:
    """Return an HTML page with the differences, the metrics and the runs."""
    counts = " or ".join(f"{count:,}" for count in sorted({run.n for run in runs}))
    header = ("run", "folder", "parameters", "vocabulary", "seed")
    listed = [
        (run.name, run.folder, run.parameters, run.vocabulary, ", ".join(map(str, run.seeds)))
        for run in runs
    ]
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
    compared = {run.name: run for run in runs if name in run.metrics}
    units = {run.metrics[name].unit for run in compared.values()}
    # Notes may differ between runs, for example on the majority answer in training.
    notes = {key: run.evaluations[0].notes.get(name, "") for key, run in compared.items()}
    differ = len(set(notes.values())) > 1
    rows = [
        ResultRow(
            key, run.metrics[name].n or run.n, run.metrics[name], notes[key] if differ else ""
        )
        for key, run in compared.items()
    ]
    return Section(
        title=metric_title(name),
        lead="" if differ else next(iter(notes.values())),
        body=result_table(rows, metric=metric_name(name), percent=units <= set(PERCENT_UNITS)),
    )
