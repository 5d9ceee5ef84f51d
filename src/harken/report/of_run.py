"""The page of one run: figures, learning curves, attention, right and wrong answers."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from harken.config import as_plain
from harken.inspection.record import record
from harken.measure.accuracy import exact_matches
from harken.report.curves import Curve, Stage, curve_figure
from harken.report.examples import Example, examples_table
from harken.report.heatmap import AttentionMaps, attention_figure
from harken.report.page import Section, page
from harken.report.tables import ResultRow, result_table, settings_table
from harken.run import LOG, Run
from harken.tasks.task import Evaluation, Prediction, device_of
from harken.version import __version__

SHOWN = 12  # examples of each kind
SMOOTHING = 0.05  # weight of a new loss in the drawn mean: single batches differ too much to read


def run_report(run: Run, evaluation: Evaluation, rows: Sequence[ResultRow] | None = None) -> str:
    """One self-contained HTML document; `rows` sets other runs beside this one."""
    metric = next(iter(evaluation.metrics))
    right = exact_matches([one.output for one in evaluation.predictions], evaluation.expected)
    shown = _choose(evaluation.predictions, right)
    weights = sum(parameter.numel() for parameter in run.model.parameters())
    title = f"{run.recipe.task}: {run.folder.name}"
    return page(
        title,
        subtitle=f"{evaluation.metrics[metric].value:.1%} {_words(metric)} on {evaluation.n} "
        "held-out examples",
        facts={
            "task": run.recipe.task,
            "weights": f"{weights:,}",
            "vocabulary": f"{len(run.vocabulary):,}",
            "seed": str(run.recipe.seed),
        },
        sections=[
            Section(
                title="What it knows",
                lead=" ".join(
                    f"{_words(name).capitalize()}: {note}."
                    for name, note in evaluation.notes.items()
                ),
                body=result_table(
                    rows if rows is not None else evaluation_rows(evaluation),
                    metric=_words(metric),
                ),
            ),
            Section(
                title="How it learned",
                lead="Cross-entropy in nats a token, smoothed; stages follow each other.",
                body=_learning(run.folder / LOG),
            ),
            Section(
                title="Where it looked",
                lead="Attention of every layer and head, for one held-out example. "
                "A row is a token that looks, a column a token that is looked at; the last row is "
                "the one that decides the last token of the answer.",
                body=_attention(run, shown),
            ),
            Section(
                title="Right and wrong",
                lead=f"{sum(right)} of {len(right)} are right. The first {SHOWN} of each kind are "
                "shown, the surest of them first.",
                body=_examples(evaluation, right),
            ),
            Section(title="The recipe", body=settings_table(as_plain(run.recipe))),
        ],
        footer=f"Written by Harken {__version__}.",
    )


def evaluation_rows(evaluation: Evaluation) -> list[ResultRow]:
    """Every metric of one evaluation as a row."""
    return [
        ResultRow(
            name=_words(name), n=evaluation.n, metric=value, note=evaluation.notes.get(name, "")
        )
        for name, value in evaluation.metrics.items()
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _choose(predictions: Sequence[Prediction], right: Sequence[bool]) -> Prediction:
    """The first right one: a wrong answer's attention explains less."""
    both = zip(predictions, right, strict=True)
    return next((one for one, fine in both if fine), predictions[0])


def _learning(log: Path) -> str:
    """Loss against step, stages one after the other on one axis."""
    curves: dict[str, tuple[list[int], list[float]]] = {}
    stages: list[Stage] = []
    offset = last = 0
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
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


def _attention(run: Run, prediction: Prediction) -> str:
    glimpse = run.glimpse(prediction)
    tokens = torch.tensor([glimpse.tokens], device=device_of(run.model))
    with torch.inference_mode(), record(run.model) as seen:
        run.model(tokens)
    return attention_figure(
        AttentionMaps(
            query_tokens=glimpse.pieces,
            key_tokens=glimpse.pieces,
            layers=[one.weights[0].float().cpu().numpy() for one in seen],
        ),
        title=glimpse.title,
    )


def _examples(evaluation: Evaluation, right: Sequence[bool]) -> str:
    left = {True: SHOWN, False: SHOWN}
    chosen = []
    triples = zip(evaluation.predictions, evaluation.expected, right, strict=True)
    for prediction, expected, fine in triples:
        if left[fine]:
            left[fine] -= 1
            chosen.append(
                Example(
                    input=prediction.input,
                    expected=expected,
                    answer=prediction.output,
                    confidence=prediction.confidence,
                    right=fine,
                )
            )
    return examples_table(chosen)
