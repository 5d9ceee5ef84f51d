"""The report of a run: metrics, training curves, attention, examples and settings."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from harken.config import as_plain
from harken.measure.interval import SHARES, Unit, shown
from harken.measure.scored_answers import exact_matches
from harken.report.attention_page import attention_figure, title_of
from harken.report.chart import Mark, Series, chart
from harken.report.honesty import honesty_section
from harken.report.page import Section, page
from harken.report.tables import (
    Example,
    ResultRow,
    examples_table,
    plain_table,
    result_table,
    settings_table,
)
from harken.report.viewed_attention import view_attention
from harken.run import LOG, Run, read_log
from harken.tasks.prediction import Evaluation

EXAMPLES = 12  # of each kind
CAPTIONS: dict[Unit, str] = {"error": "Error rates (lower is better), with 95 % intervals."}
SMOOTHING = 0.05  # weight of a new loss in the moving average


def run_report(run: Run, evaluation: Evaluation, rows: Sequence[ResultRow] | None = None) -> str:
    """Return one self-contained HTML document; `rows` compares this run with others."""
    name, first = next(iter(evaluation.metrics.items()))
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    compared = Markup() if rows is None else result_table(rows, metric=metric_name(name))
    return page(
        f"{run.recipe.task}: {run.folder.name}",
        subtitle=f"{metric_name(name).capitalize()} {shown(first.value, first.unit)} on "
        f"{evaluation.n} held-out examples",
        facts={
            "task": run.recipe.task,
            "parameters": f"{parameters:,}",
            "vocabulary": f"{run.vocabulary.sizes.entries:,}",
            "seed": str(run.recipe.seed),
        },
        sections=[
            Section(
                title="Results", lead=_truncation(evaluation), body=compared + _metrics(evaluation)
            ),
            *([] if evaluation.honesty is None else [honesty_section(evaluation.honesty)]),
            Section(
                title="Training",
                lead="Cross-entropy in nats per target, as a moving average.",
                body=_training(run.folder / LOG),
            ),
            *_attention(run, evaluation),
            *_examples(evaluation),
            *(
                Section(title=table.title, body=plain_table(table.header, table.rows))
                for table in evaluation.tables
            ),
            Section(title="Settings", body=settings_table(as_plain(run.recipe))),
        ],
    )


def metric_name(name: str) -> str:
    """Return the name of a metric as words."""
    return name.replace("_", " ")


def _truncation(evaluation: Evaluation) -> str:
    """Return how many inputs the model read only in part."""
    cut = [
        prediction.truncation
        for prediction in evaluation.predictions
        if prediction.truncation is not None
    ]
    if not cut:
        return ""
    return (
        f"{len(cut)} of {evaluation.n} inputs are longer than the model reads. "
        f"The first of them: {cut[0]}."
    )


def _metrics(evaluation: Evaluation) -> Markup:
    """Return one table per unit: proportions and nats have no common axis."""
    units = dict.fromkeys(metric.unit for metric in evaluation.metrics.values())
    tables = [
        result_table(
            [
                ResultRow(
                    name=metric_name(name),
                    n=evaluation.units(name),
                    metric=metric,
                    note=evaluation.notes.get(name, ""),
                )
                for name, metric in evaluation.metrics.items()
                if metric.unit == unit
            ],
            metric="value" if unit in SHARES else unit,
            percent=unit in SHARES,
            caption=CAPTIONS.get(unit, ""),
            named="metric",
        )
        for unit in units
    ]
    return Markup().join(tables)


def _training(log: Path) -> Markup:
    """Return the loss over steps, stages one after the other on one axis."""
    curves: dict[str, tuple[list[int], list[float]]] = {}
    stages: list[Mark] = []
    offset = last = 0
    for event in read_log(log):
        if event["event"] != "stepped":
            continue
        if event["stage"] not in curves:
            offset = last
            curves[event["stage"]] = ([], [])
            stages.append(Mark(offset, event["stage"]))
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
        marks=stages,
    )


def _attention(run: Run, evaluation: Evaluation) -> list[Section]:
    example = None if evaluation.example is None else run.attention(evaluation.example)
    if example is None:
        return []
    figures = [
        attention_figure(viewed, title_of(example), note=viewed.view.title)
        for viewed in view_attention(run.model, example)
    ]
    if not figures:
        return []
    lead = "Attention weights of every layer and head for one held-out example."
    return [Section(title="Attention", lead=lead, body=Markup().join(figures))]


def _examples(evaluation: Evaluation) -> list[Section]:
    if not evaluation.predictions:
        return []
    outputs = [prediction.output for prediction in evaluation.predictions]
    correct = exact_matches(outputs, evaluation.expected)
    left = {True: EXAMPLES, False: EXAMPLES}
    examples = []
    triples = zip(evaluation.predictions, evaluation.expected, correct, strict=True)
    for prediction, expected, is_correct in triples:
        if left[is_correct]:
            left[is_correct] -= 1
            examples.append(
                Example(
                    input=prediction.input,
                    note="" if prediction.truncation is None else str(prediction.truncation),
                    expected=expected,
                    output=prediction.output,
                    confidence=prediction.confidence,
                    correct=is_correct,
                )
            )
    lead = (
        f"{sum(correct)} of {len(correct)} outputs are correct. The first {EXAMPLES} of each kind "
        "are shown, sorted by confidence."
    )
    return [Section(title="Examples", lead=lead, body=examples_table(examples))]
