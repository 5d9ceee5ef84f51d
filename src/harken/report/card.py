"""The model card of a run: what it is, what it scores, how to use it and make it again."""

import platform

import torch

from harken.run import RECIPE, REPORT, Run
from harken.tasks.task import Evaluation
from harken.version import __version__


def model_card(run: Run, evaluation: Evaluation) -> str:
    """Markdown, for the run folder's README."""
    weights = sum(parameter.numel() for parameter in run.model.parameters())
    figures = "\n".join(
        f"| {name.replace('_', ' ')} | {one.value:.1%} | {one.low:.1%} - {one.high:.1%} "
        f"| {evaluation.notes.get(name, '')} |"
        for name, one in evaluation.metrics.items()
    )
    return f"""# {run.folder.name}

A model for the task `{run.recipe.task}`, made by Harken {__version__} with PyTorch \
{torch.__version__} on {platform.system()} {platform.machine()}: {weights:,} weights, \
{len(run.vocabulary):,} tokens, seed {run.recipe.seed}.

## Figures on the dev split ({evaluation.n} examples)

| metric | value | 95 % interval | meaning |
| --- | ---: | ---: | --- |
{figures}

Pictures and examples: `{REPORT}`.

## Use

    harken predict {run.folder} questions.txt
    harken evaluate {run.folder}

## Make it again

    harken train {RECIPE} --run elsewhere

## Limits

It answers from what it read and has no way to say that it does not know; its confidence is the
probability of the answer under the model, not of being right.
"""
