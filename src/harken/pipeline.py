"""From a recipe to a finished run folder; every step can be killed and taken up again.

    recipe.toml -> tokenizer.json -> tokens/ -> stages (checkpoints/, log.jsonl)
                -> model.safetensors -> metrics.json -> README.md, report.html

Each arrow writes its file whole or not at all, so what exists is done. SIGINT and SIGTERM are noted
and obeyed between two steps, after a checkpoint.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from harken import config
from harken.errors import UserError
from harken.files import replacing, write_text
from harken.recipe import Recipe, load_recipe, task_of
from harken.report.card import model_card
from harken.report.of_run import run_report
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
)
from harken.tasks.task import Evaluation
from harken.training.checkpoint import save_weights, weights_of, write_manifest
from harken.training.loop import Event, Saved, Stage, Training
from harken.training.machine import choose_device, prepare

Listener = Callable[[Event], None]


class Interrupted(Exception):
    """A signal asked to stop; all is saved."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number, self.folder = number, folder


def train(
    recipe: Recipe, folder: Path, *, resume: bool = False, listener: Listener | None = None
) -> Run:
    """Train a recipe into `folder`, or go on where it stopped; a finished run is only loaded."""
    settle(recipe, folder, resume=resume)
    if not (folder / MODEL).exists():
        with watching_signals() as received:
            _train_stages(recipe, folder, listener, received)
    run = load(folder, recipe.training.machine.device)
    if not (folder / REPORT).exists():
        finish(run)
    return run


def settle(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    """Make the folder this recipe's own, or refuse one that is another's."""
    stored = folder / RECIPE
    if not stored.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(
                f"{folder}: found a folder with files that are no run, wanted a new or empty one",
                fix="choose another folder with --run",
            )
        task_of(recipe).read(recipe)  # wrong data must not leave a folder behind
        folder.mkdir(parents=True, exist_ok=True)
        write_text(stored, config.dumps(recipe))
        return
    if not resume:
        raise UserError(
            f"{folder}: found a run there already, wanted a new folder",
            fix="add --resume to go on with it, or choose another folder with --run",
        )
    known, wanted = config.dumps(load_recipe(stored)), config.dumps(recipe)
    if known != wanted:
        pairs = zip(known.splitlines(), wanted.splitlines(), strict=False)
        first = next(((old, new) for old, new in pairs if old != new), ("its end", "more lines"))
        raise UserError(
            f"{stored}: found a run made with {first[0]!r}, wanted to resume it with {first[1]!r}",
            fix=f"resume with `harken train {stored} --resume`, or choose another --run",
        )


def _train_stages(
    recipe: Recipe, folder: Path, listener: Listener | None, received: list[int]
) -> None:
    task = task_of(recipe)
    device = choose_device(recipe.training.machine.device)
    prepare(device)
    splits = task.read(recipe)
    if not (folder / TOKENIZER).exists():
        write_text(folder / TOKENIZER, task.fit(recipe, splits).to_json())
    fitted = task.restore(folder / TOKENIZER)
    model = task.build(recipe, fitted).to(device)
    stages = task.stages(recipe, splits, fitted, folder / TOKENS)
    training = Training(
        model,
        stages,
        seed=recipe.seed,
        machine=recipe.training.machine,
        device=device,
        checkpoints=folder / CHECKPOINTS,
    )
    training.resume()
    _cut_log(folder / LOG, stages, training)
    # Line by line, so that the log reaches at least as far as any checkpoint.
    with (folder / LOG).open("a", encoding="utf-8", buffering=1) as log:
        for event in training:
            if not isinstance(event, Saved):
                record = {"event": type(event).__name__.lower(), **asdict(event)}
                log.write(json.dumps(record) + "\n")
            if listener is not None:
                listener(event)
            if received:
                training.save()
                raise Interrupted(received[0], folder)
    with replacing(folder / MODEL) as unfinished:
        save_weights(unfinished, weights_of(model))
        # The manifest comes first: weights without one would be a run that cannot be loaded.
        write_manifest(folder, {RECIPE: RECIPE, TOKENIZER: TOKENIZER, MODEL: unfinished.name})


def _cut_log(path: Path, stages: list[Stage], training: Training) -> None:
    """Forget what was logged after the checkpoint that training goes on from."""
    if not path.exists():
        return
    numbers = {stage.name: number for number, stage in enumerate(stages)}
    reached = (training.progress.stage, training.progress.step)
    with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8") as kept:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:  # the line that a kill cut in two
                continue
            if (numbers.get(event["stage"], -1), event["step"]) <= reached:
                kept.write(line + "\n")


def finish(run: Run) -> None:
    """Measure a trained run and write what people read."""
    evaluation = run.evaluate()
    write_text(run.folder / METRICS, json.dumps(metrics_record(run, evaluation), indent=1))
    write_text(run.folder / CARD, model_card(run, evaluation))
    write_text(run.folder / REPORT, run_report(run, evaluation))


def metrics_record(run: Run, evaluation: Evaluation) -> dict[str, object]:
    """The JSON form of an evaluation: the contract of `evaluate --json`."""
    return {
        "task": run.recipe.task,
        "n": evaluation.n,
        "metrics": {name: asdict(value) for name, value in evaluation.metrics.items()},
    }


@contextmanager
def watching_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM; a second SIGINT stops at once, at the last checkpoint."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may ask for signals
        return

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
