"""The model card of a run in Markdown."""

import platform

import torch

from harken.measure.interval import format_interval, format_value
from harken.run import RECIPE, REPORT, Run
from harken.tasks.prediction import Evaluation
from harken.version import __version__


def model_card(run: Run, evaluation: Evaluation) -> str:
    """Return the README of a run folder."""
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    figures = "\n".join(
        f"| {name.replace('_', ' ')} | {format_value(metric.value, metric.unit)} "
        f"| {format_interval(metric)} | {evaluation.count(name):,} "
        f"| {evaluation.notes.get(name, '')} |"
        for name, metric in evaluation.metrics.items()
    )
    abstention = "unless you use `harken predict --max-error RATE`"
    if evaluation.honesty is None:
        abstention = "and cannot abstain"
    return f"""# {run.folder.name}

A model for the task `{run.recipe.task}`, trained with Harken {__version__} and PyTorch \
{torch.__version__} on {platform.system()} {platform.machine()}: {parameters:,} parameters, \
vocabulary of {run.vocabulary.sizes.entries:,}, seed {run.recipe.seed}.

## Results on the dev split ({evaluation.n} examples)

| metric | value | 95 % interval | n | meaning |
| --- | ---: | ---: | ---: | --- |
{figures}

Figures and examples: `{REPORT}`.

## Use

    harken predict {run.folder} FILE
    harken evaluate {run.folder}

## Reproduce

    harken train {RECIPE} --run NEW_FOLDER

## Limits

The model produces an output for every input {abstention}. Its confidence is the
probability of the output under the model, not the probability that the output is correct.
"""
