"""Train a recipe into a run folder; a run killed at any point can be resumed.

    provenance.json, recipe.toml -> tokenizer.json -> tokens/ -> stages (checkpoints/, log.jsonl)
                -> model.safetensors -> metrics.json -> README.md, report.html

Each arrow writes its file completely or not at all, so a file that exists is complete. SIGINT,
SIGTERM and SIGHUP stop the run at once, or after the current training step and a checkpoint.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from harken import config
from harken.errors import UserError
from harken.files import (
    LOCK,
    appended,
    json_text,
    locked_folder,
    remove_folder,
    remove_leftovers,
    replacing,
    write_tensors,
    write_text,
)
from harken.provenance import PROVENANCE, check_data, check_recipe, provenance
from harken.recipe import Recipe, task_of
from harken.report.markup import prose
from harken.report.model_card import model_card
from harken.report.run_page import run_report
from harken.run import (
    CARD,
    CHECKPOINTS,
    LOG,
    METRICS,
    MODEL,
    RECIPE,
    REPORT,
    TOKENIZER,
    TOKENS,
    Run,
    load,
    read_log,
)
from harken.tasks.prediction import Evaluation
from harken.tasks.task import Splits
from harken.training.checkpoint import model_state, write_digests
from harken.training.loop import CheckpointSaved, EvaluationDone, Event, Stage, Training
from harken.training.memory import TRAINING, check_model_size
from harken.training.progress import training_progress
from harken.training.runtime import choose_device, prepare
from harken.training.signals import Interrupted, StopSignals, run_interruptibly, stop_signals

Listener = Callable[[Event], None]


def train(
    recipe: Recipe,
    folder: str | PathLike[str],
    *,
    resume: bool = False,
    listener: Listener | None = None,
    progress: bool | None = None,
) -> Run:
    """Train a model from a recipe and return its run.

    Arguments:
        recipe: as `harken.load_recipe` returns it.
        folder: the run folder to write. If it holds the finished run, this run is loaded.
        resume: continue an interrupted run in this folder.
        listener: called with every event of training.
        progress: show one line on stderr; None shows it if stderr is a terminal or a notebook.

        run = harken.train(harken.load_recipe("recipe.toml"), "runs/mine")
    """
    folder = Path(folder)
    with stop_signals() as stop, training_progress(prose(folder.name), progress) as show:
        device = choose_device(recipe.training.runtime.device)
        check_run_folder(recipe, folder, resume=resume)
        task = task_of(recipe)
        splits = task.read_splits(recipe)
        if not (folder / MODEL).exists():
            list(splits.values())  # report errors in the data before the folder is claimed
        with locked_folder(folder):
            check_run_folder(recipe, folder, resume=resume)  # another process may have been here
            remove_leftovers(folder)
            if not (folder / MODEL).exists():
                with claimed_folder(recipe, folder, splits):
                    listeners = [show] if listener is None else [show, listener]
                    run = _train_stages(recipe, folder, splits, device, listeners, stop)
            else:
                run = load(folder, recipe.training.runtime.device)
            if not all((folder / name).exists() for name in (METRICS, CARD, REPORT)):
                finish(run)
            return run


def check_run_folder(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    """Raise if the folder has other files than this recipe's run."""
    if not (folder / RECIPE).exists():
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        # A process killed before recipe.toml was complete leaves only these.
        if {name for name in names if not name.endswith(".unfinished")} - {LOCK, PROVENANCE}:
            raise UserError(
                f"{folder}: the folder holds files that are not a run (expected a new or empty "
                "folder)",
                fix="choose another run folder",
            )
        return
    if not resume:
        raise UserError(
            f"{folder}: the folder already holds a run",
            fix="choose another run folder, or resume it with resume=True (command line: --resume)",
        )
    check_recipe(folder, recipe)


@contextmanager
def claimed_folder(recipe: Recipe, folder: Path, splits: Splits[Any]) -> Iterator[None]:
    """Write or check recipe and provenance; remove a new run that fails before its first step."""
    started = provenance(recipe, splits)
    is_new = not (folder / RECIPE).exists()
    if is_new:
        write_text(folder / PROVENANCE, json.dumps(started, indent=1))
        write_text(folder / RECIPE, config.dumps(recipe))
    else:
        check_data(folder, started)
    try:
        yield
    except Exception:
        if is_new and not (folder / LOG).exists():
            for path in folder.iterdir():
                remove_folder(path) if path.is_dir() else path.unlink()
            with suppress(OSError):
                folder.rmdir()
        raise


def _train_stages(
    recipe: Recipe,
    folder: Path,
    splits: Splits[Any],
    device: torch.device,
    listeners: Sequence[Listener],
    stop: StopSignals,
) -> Run:
    task = task_of(recipe)
    prepare(device)
    if not (folder / TOKENIZER).exists():
        vocabulary = run_interruptibly(lambda: task.fit(recipe, splits["train"]))
        write_text(folder / TOKENIZER, vocabulary.to_json())
    vocabulary = task.vocabulary_type.load(folder / TOKENIZER)
    build = partial(task.build, recipe, vocabulary.sizes)
    check_model_size(build, "recipe", bytes_per_parameter=TRAINING, device=device)
    model = build().to(device)
    stages = task.stages(recipe, splits, vocabulary, folder / TOKENS)
    training = Training(
        model,
        stages,
        seed=recipe.seed,
        runtime=recipe.training.runtime,
        device=device,
        checkpoints=folder / CHECKPOINTS,
        interruptible=stop.immediate,
    )
    training.resume()
    _cut_log(folder / LOG, stages, training)
    with stop.deferred(), appended(folder / LOG) as write_line:
        try:
            for event in training:
                if not isinstance(event, CheckpointSaved):
                    kind = "evaluated" if isinstance(event, EvaluationDone) else "stepped"
                    write_line(json_text({"event": kind, **asdict(event)}))
                for listener in listeners:
                    listener(event)
                stop.check()
        except Interrupted:
            training.save()
            raise
    with replacing(folder / MODEL) as unfinished:
        write_tensors(unfinished, model_state(model))
        # The manifest comes first: weights without one would be a run that cannot be loaded.
        write_digests(folder, {RECIPE: RECIPE, TOKENIZER: TOKENIZER, MODEL: unfinished.name})
    return Run(folder, recipe, task, splits, vocabulary, model.eval())


def _cut_log(path: Path, stages: Sequence[Stage[Any]], training: Training[Any]) -> None:
    """Remove the events after the checkpoint from which training is resumed."""
    if not path.exists():
        return
    numbers = {stage.name: number for number, stage in enumerate(stages)}
    progress = training.progress
    reached = (progress.stage, progress.step, not progress.evaluation_due)

    def position(event: dict[str, Any]) -> tuple[int, int, bool]:
        return numbers.get(event["stage"], -1), event["step"], event["event"] == "evaluated"

    lines = [json_text(event) for event in read_log(path) if position(event) <= reached]
    write_text(path, "".join(f"{line}\n" for line in lines))


def finish(run: Run) -> None:
    """Evaluate a trained run and write metrics, model card and report."""
    evaluation = run.evaluate()
    write_text(run.folder / METRICS, json_text(metrics_record(run, evaluation), indent=1))
    write_text(run.folder / CARD, model_card(run, evaluation))
    write_text(run.folder / REPORT, run_report(run, evaluation))


def metrics_record(run: Run, evaluation: Evaluation) -> dict[str, object]:
    """Return the JSON object of `evaluate --json`."""
    metrics = {name: asdict(estimate) for name, estimate in evaluation.metrics.items()}
    return {"task": run.recipe.task, "n": evaluation.n, "metrics": metrics}
