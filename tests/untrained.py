"""Runs of untrained models, with all files that a command needs."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harken import config
from harken.cli.new import new_recipe
from harken.files import write_tensors, write_text
from harken.pipeline import train
from harken.recipe import TASKS, Recipe, load_recipe, task_of
from harken.run import Run
from harken.run_folder import MODEL, RECIPE, TOKENIZER
from harken.training.checkpoint import load_weights, model_state, write_digests
from harken.training.loop import Stage
from small_files import write_files


def task_recipe(task: str, folder: Path, overrides: Sequence[str] = ()) -> Any:
    """Write the files of `small_files.py` and the recipe that `harken new` writes for a task."""
    if not (folder / "text.txt").exists():
        write_files(folder)
    calls = TASKS[task].layout.calls
    files = next(call for call in reversed(calls) if "test" not in call)  # with a dev file
    roles = dict(zip(calls[files], (folder / file for file in files.split()), strict=True))
    path = folder / f"{task}.toml"
    write_text(path, new_recipe(task, roles, None, folder).text)
    return load_recipe(path, overrides)


def untrained_run(
    recipe: Recipe, folder: Path, change: Callable[[nn.Module], None] | None = None
) -> Path:
    """Fit the vocabulary, build the model and write both; `change` can edit the weights."""
    folder.mkdir(parents=True)
    task = task_of(recipe)
    write_text(folder / RECIPE, config.dumps(recipe))
    vocabulary = task.fit(recipe, task.read_splits(recipe)["train"])
    write_text(folder / TOKENIZER, vocabulary.to_json())
    model = task.build(recipe, task.vocabulary_type.load(folder / TOKENIZER).sizes)
    if change is not None:
        change(model)
    write_tensors(folder / MODEL, model_state(model))
    write_digests(folder, {name: name for name in (RECIPE, TOKENIZER, MODEL)})
    return folder


def equal_weights(*runs: Path) -> bool:
    first, second = (load_weights(run / MODEL) for run in runs)
    return all(torch.equal(first[name], second[name]) for name in first)


def bound_run(recipe: Any, vocabulary: Any, model: nn.Module) -> Run:
    """Return a run in memory."""
    task = task_of(recipe)
    return Run(Path(), recipe, task, task.read_splits(recipe), vocabulary, model)


def initial_run(recipe: Any, std: float | None = None, *, all_weights: bool = True) -> Run:
    """Return a run in memory with its initial weights, or with large random ones."""
    task = task_of(recipe)
    vocabulary = task.fit(recipe, task.read_splits(recipe)["train"])
    model, generator = task.build(recipe, vocabulary.sizes), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters() if std is not None else ():
            if all_weights or parameter.dim() > 1:
                parameter.normal_(std=std, generator=generator)
    return bound_run(recipe, vocabulary, model.eval())


def stages_of(run: Run, folder: Path) -> list[Stage[Any]]:
    """Return the training stages of a run in memory."""
    return run.task.stages(run.recipe, run.splits, run.vocabulary, folder)


def trained_once(
    recipe: Callable[..., Any], models: Mapping[str, Sequence[str]], data: Path, folder: Path
) -> Callable[[str], Run]:
    """Return a function from the name of a model to its run, which is trained at the first call."""

    @cache
    def run(name: str) -> Run:
        return train(recipe(data, *models[name]), folder / re.sub(r"\W+", "-", name))

    return run


def batches(stage: Stage[Any], number: int) -> list[Any]:
    """Return the parts of a training batch without their loss."""
    return [part.batch for part in stage.batch(number)]
