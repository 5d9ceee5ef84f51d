"""The model card of a run: what it is, what it scores, how to use it and make it again."""

import platform

import torch

from harken.measure.interval import shown, shown_interval
from harken.run import RECIPE, REPORT, Run
from harken.tasks.prediction import Evaluation
from harken.version import __version__


def model_card(run: Run, evaluation: Evaluation) -> str:
    """Markdown, for the run folder's README."""
    weights = sum(parameter.numel() for parameter in run.model.parameters())
    figures = "\n".join(
        f"| {name.replace('_', ' ')} | {shown(one.value, one.unit)} "
        f"| {shown_interval(one)} | {evaluation.units(name):,} "
        f"| {evaluation.notes.get(name, '')} |"
        for name, one in evaluation.metrics.items()
    )
    silence = (
        "and has no way to say that it does not know"
        if evaluation.honesty is None
        else "unless `harken predict --max-error RATE` is used"
    )
    return f"""# {run.folder.name}

A model for the task `{run.recipe.task}`, made by Harken {__version__} with PyTorch \
{torch.__version__} on {platform.system()} {platform.machine()}: {weights:,} weights, \
{run.vocabulary.sizes.entries:,} units, seed {run.recipe.seed}.

## Figures on the dev split ({evaluation.n} examples)

| metric | value | 95 % interval | n | meaning |
| --- | ---: | ---: | ---: | --- |
{figures}

Pictures and examples: `{REPORT}`.

## Use

    harken predict {run.folder} FILE
    harken evaluate {run.folder}

## Make it again

    harken train {RECIPE} --run elsewhere

## Limits

It says something to every input {silence}; its confidence
is the probability of the output under the model, not of being right.
"""
