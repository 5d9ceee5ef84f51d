"""The model card of a run, in Markdown."""

import platform

import torch

from harken.measure.interval import format_interval, format_value
from harken.run import Run
from harken.run_folder import RECIPE, REPORT
from harken.tasks.prediction import Evaluation
from harken.version import __version__


def model_card(run: Run, evaluation: Evaluation) -> str:
    """Return the README of a run folder."""
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    rows = "\n".join(
        f"| {name.replace('_', ' ')} | {format_value(metric.value, metric.unit)} "
        f"| {format_interval(metric)} | {evaluation.count(name):,} "
        f"| {evaluation.notes.get(name, '')} |"
        for name, metric in evaluation.metrics.items()
    )
    has_targets = all(run.task.target(example) is not None for example in run.splits["dev"])
    exception = ", unless you use `harken predict --max-error RATE`" if has_targets else ""
    return f"""# {run.folder.name}

A model for the task `{run.recipe.task}`, trained with Harken {__version__} and PyTorch \
{torch.__version__} on {platform.system()} {platform.machine()}: {parameters:,} parameters, \
vocabulary of {run.vocabulary.sizes.entries:,}, seed {run.recipe.seed}.

## Results on the dev split ({evaluation.n} examples)

| metric | value | 95 % interval | n | note |
| --- | ---: | ---: | ---: | --- |
{rows}

Charts and examples: `{REPORT}`.

## Usage

    harken predict {run.folder} FILE
    harken evaluate {run.folder}

## Reproduce

    harken train {RECIPE} --run NEW_FOLDER

## Limitations

The model returns an output for every input{exception}. Its confidence is the
probability that the model assigns to the output, not the probability that the output is correct.
"""
