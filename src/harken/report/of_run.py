"""The page of one run: figures, learning curves, attention, right and wrong answers."""

from collections.abc import Sequence
from pathlib import Path

from harken.config import as_plain
from harken.measure.accuracy import exact_matches
from harken.measure.interval import SHARES, Unit, shown
from harken.report.curves import Curve, Stage, curve_figure
from harken.report.examples import Example, examples_table
from harken.report.honesty import honesty_section
from harken.report.looking import figure_of, look, title_of
from harken.report.page import Section, page
from harken.report.tables import ResultRow, plain_table, result_table, settings_table
from harken.run import LOG, Run, read_log
from harken.tasks.prediction import Evaluation
from harken.version import __version__

SHOWN = 12  # examples of each kind
CAPTIONS: dict[Unit, str] = {"error": "Error rates (lower is better), with 95 % intervals."}
SMOOTHING = 0.05  # weight of a new loss in the drawn mean: single batches differ too much to read


def run_report(run: Run, evaluation: Evaluation, rows: Sequence[ResultRow] | None = None) -> str:
    """One self-contained HTML document; `rows` sets other runs beside this one."""
    name, first = next(iter(evaluation.metrics.items()))
    weights = sum(parameter.numel() for parameter in run.model.parameters())
    return page(
        f"{run.recipe.task}: {run.folder.name}",
        subtitle=f"{_words(name).capitalize()} {shown(first.value, first.unit)} on "
        f"{evaluation.n} held-out examples",
        facts={
            "task": run.recipe.task,
            "weights": f"{weights:,}",
            "vocabulary": f"{run.vocabulary.sizes.entries:,}",
            "seed": str(run.recipe.seed),
        },
        sections=[
            Section(
                title="What it knows",
                lead=_truncated(evaluation),
                body=_figures(evaluation)
                if rows is None
                else result_table(rows, metric=_words(name)) + _figures(evaluation),
            ),
            *([] if evaluation.honesty is None else [honesty_section(evaluation.honesty)]),
            Section(
                title="How it learned",
                lead="Cross-entropy in nats a target, smoothed; stages follow each other.",
                body=_learning(run.folder / LOG),
            ),
            *_attention(run, evaluation),
            *_examples(evaluation),
            *(
                Section(title=one.title, body=plain_table(one.header, one.rows))
                for one in evaluation.tables
            ),
            Section(title="The recipe", body=settings_table(as_plain(run.recipe))),
        ],
        footer=f"Written by Harken {__version__}.",
    )


def _truncated(evaluation: Evaluation) -> str:
    """How many inputs the model read only in part; nothing where it read all of them."""
    cut = [one.truncation for one in evaluation.predictions if one.truncation is not None]
    if not cut:
        return ""
    return (
        f"{len(cut)} of {evaluation.n} inputs are longer than the model reads. "
        f"The first of them: {cut[0]}."
    )


def _figures(evaluation: Evaluation) -> str:
    """One table a unit: shares and nats have no axis in common."""
    units = dict.fromkeys(one.unit for one in evaluation.metrics.values())
    return "".join(
        result_table(
            [
                ResultRow(
                    name=_words(name),
                    n=evaluation.units(name),
                    metric=one,
                    note=evaluation.notes.get(name, ""),
                )
                for name, one in evaluation.metrics.items()
                if one.unit == unit
            ],
            metric="share" if unit in SHARES else unit,
            percent=unit in SHARES,
            caption=CAPTIONS.get(unit, ""),
        )
        for unit in units
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _learning(log: Path) -> str:
    """Loss against step, stages one after the other on one axis."""
    curves: dict[str, tuple[list[int], list[float]]] = {}
    stages: list[Stage] = []
    offset = last = 0
    for event in read_log(log):
        if event["event"] != "stepped":
            continue
        if event["stage"] not in curves:
            offset = last
            curves[event["stage"]] = ([], [])
            stages.append(Stage(name=event["stage"], first_step=offset))
        steps, losses = curves[event["stage"]]
        last = offset + event["step"]
        mean = losses[-1] if losses else event["loss"]
        steps.append(last)
        losses.append(mean + SMOOTHING * (event["loss"] - mean))
    return curve_figure(
        [Curve(name=name, steps=steps, values=losses) for name, (steps, losses) in curves.items()],
        title="Training loss",
        x_label="step",
        y_label="nats a token",
        stages=stages,
    )


def _attention(run: Run, evaluation: Evaluation) -> list[Section]:
    example = None if evaluation.example is None else run.attention(evaluation.example)
    if example is None:
        return []
    figures = [figure_of(view, title_of(example)) for view in look(run.model, example)]
    if not figures:
        return []
    return [
        Section(
            title="Where it looked",
            lead="Attention of every layer and head, for one held-out example. A row is what "
            "looks, a column what is looked at.",
            body="".join(figures),
        )
    ]


def _examples(evaluation: Evaluation) -> list[Section]:
    if not evaluation.predictions:
        return []
    right = exact_matches([one.output for one in evaluation.predictions], evaluation.expected)
    left = {True: SHOWN, False: SHOWN}
    chosen = []
    triples = zip(evaluation.predictions, evaluation.expected, right, strict=True)
    for prediction, expected, fine in triples:
        if left[fine]:
            left[fine] -= 1
            chosen.append(
                Example(
                    input=prediction.input,
                    note="" if prediction.truncation is None else str(prediction.truncation),
                    expected=expected,
                    answer=prediction.output,
                    confidence=prediction.confidence,
                    right=fine,
                )
            )
    return [
        Section(
            title="Right and wrong",
            lead=f"{sum(right)} of {len(right)} are exactly as expected. The first {SHOWN} of each "
            "kind are shown, the surest of them first.",
            body=examples_table(chosen),
        )
    ]
