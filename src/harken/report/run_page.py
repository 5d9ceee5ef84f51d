"""The report of a run: results, training curve, attention, examples and settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup

from harken.config import as_plain
from harken.measure.interval import PERCENT_UNITS, Estimate, format_value, metric_name, metric_title
from harken.measure.scored_answers import exact_matches
from harken.report import tables
from harken.report.attention_page import attention_figure, example_title
from harken.report.chart import Series, VerticalLine, chart
from harken.report.honesty import honesty_section
from harken.report.page import Section, page
from harken.report.tables import ResultRow, result_table
from harken.report.viewed_attention import view_attention
from harken.run import Run
from harken.run_folder import LOG, read_log
from harken.start import read_origins
from harken.tasks.prediction import Evaluation
from harken.training.origins import WeightsLoaded

EXAMPLES = 12  # of correct and of incorrect outputs
SMOOTHING = 0.05  # weight of a new loss in the moving average


def run_report(run: Run, evaluation: Evaluation, rows: Sequence[ResultRow] | None = None) -> str:
    """Return an HTML page; `rows`, if given, are a table that compares this run with others."""
    main_name, main_metric = next(iter(evaluation.metrics.items()))
    results = Markup() if rows is None else result_table(rows, metric=metric_name(main_name))
    metrics = metric_tables(evaluation.metrics, evaluation.n, evaluation.notes)
    sections = [Section(title="Results", lead=_truncation(evaluation), body=results + metrics)]
    if evaluation.honesty is not None:
        sections.append(honesty_section(evaluation.honesty))
    lead = "Moving average of the loss in nats per target."
    sections.append(Section(title="Training", lead=lead, body=_training(run.folder / LOG)))
    if figures := _attention(run, evaluation):
        lead = "Attention weights of every layer and head for one held-out example."
        sections.append(Section(title="Attention", lead=lead, body=figures))
    if evaluation.predictions:
        sections.append(_examples(evaluation))
    sections += [
        Section(title=table.title, body=tables.plain_table(table.header, table.rows))
        for table in evaluation.tables
    ]
    if (origins := read_origins(run.folder)) is not None:
        sections.append(_starting_weights(origins))
    settings = tables.settings_table(as_plain(run.recipe))
    sections.append(Section(title="Settings", body=settings))
    return page(
        f"{run.recipe.task}: {run.folder.name}",
        subtitle=f"{metric_title(main_name)} "
        f"{format_value(main_metric.value, main_metric.unit)} on {evaluation.n} held-out examples",
        facts=run_facts(run),
        sections=sections,
    )


def run_facts(run: Run) -> dict[str, str]:
    """Return the task, the sizes and the seed of a run."""
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    return {
        "task": run.recipe.task,
        "parameters": f"{parameters:,}",
        "vocabulary": f"{run.vocabulary.sizes.entries:,}",
        "seed": str(run.recipe.seed),
    }


def _starting_weights(origins: WeightsLoaded) -> Section:
    rows = [
        *((item.name, " × ".join(map(str, item.shape)), item.origin) for item in origins.tensors),
        *((name, "", "not used") for name in origins.unused),
    ]
    lead = f"Training started from the weights in {origins.folder}."
    body = tables.plain_table(("tensor", "shape", "origin"), rows)
    return Section(title="Starting weights", lead=lead, body=body)


def _truncation(evaluation: Evaluation) -> str:
    """Return a sentence about truncated inputs, if there are any."""
    predictions = evaluation.predictions
    truncated = [item.truncation for item in predictions if item.truncation is not None]
    start = f"{len(truncated)} of {evaluation.n} inputs are too long for the model."
    return f"{start} The first: {truncated[0]}." if truncated else ""


def metric_tables(
    metrics: Mapping[str, Estimate], n: int, notes: Mapping[str, str] = MappingProxyType({})
) -> Markup:
    """Return a table per unit of metrics on `n` examples."""
    rows: dict[str, list[ResultRow]] = {}
    for name, metric in metrics.items():
        count = n if metric.n is None else metric.n
        row = ResultRow(metric_name(name), count, metric, notes.get(name, ""))
        rows.setdefault(metric.unit, []).append(row)
    return Markup().join(
        result_table(
            unit_rows,
            metric="value" if unit in PERCENT_UNITS else unit,
            percent=unit in PERCENT_UNITS,
            caption="Error rates (lower is better), with 95 % intervals." * (unit == "error"),
            row_header="metric",
        )
        for unit, unit_rows in rows.items()
    )


def _training(log: Path) -> Markup:
    """Return a chart of the loss; the steps of all stages are on one axis."""
    curves: dict[str, tuple[list[int], list[float]]] = {}
    stages: list[VerticalLine] = []
    offset = last = 0
    for event in read_log(log):
        if event["event"] != "stepped":
            continue
        if event["stage"] not in curves:
            offset = last
            curves[event["stage"]] = ([], [])
            stages.append(VerticalLine(offset, event["stage"]))
        steps, losses = curves[event["stage"]]
        last = offset + event["step"]
        mean = losses[-1] if losses else event["loss"]
        steps.append(last)
        losses.append(mean + SMOOTHING * (event["loss"] - mean))
    return chart(
        [Series(name=name, x=steps, y=losses) for name, (steps, losses) in curves.items()],
        title="Training loss",
        x_label="step",
        y_label="nats per target",
        vertical_lines=stages,
    )


def _attention(run: Run, evaluation: Evaluation) -> Markup:
    example = None if evaluation.example is None else run.attention(evaluation.example)
    if example is None:
        return Markup()
    return Markup().join(
        attention_figure(viewed, example_title(example), note=viewed.view.title)
        for viewed in view_attention(run.model, example)
    )


def _examples(evaluation: Evaluation) -> Section:
    outputs = [prediction.output for prediction in evaluation.predictions]
    correct = exact_matches(outputs, evaluation.expected)
    lead = (
        f"{sum(correct)} of {len(correct)} outputs are correct. Up to {EXAMPLES} incorrect and "
        f"{EXAMPLES} correct outputs are shown, each group sorted by confidence."
    )
    body = tables.examples_table(evaluation.predictions, evaluation.expected, EXAMPLES)
    return Section(title="Examples", lead=lead, body=body)
