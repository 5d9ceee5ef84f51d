"""Train a recipe into a run folder; a run killed at any point can be resumed.

    provenance.json, recipe.toml -> tokenizer.json -> tokens/ -> start.json (of loaded weights)
                -> stages (checkpoints/, log.jsonl) -> model.safetensors -> metrics.json
                -> README.md, report.html

Each arrow writes its file completely or not at all, so a file that exists is complete. During a
stage, SIGINT, SIGTERM and SIGHUP stop the run after the current step and a checkpoint; otherwise
they stop it at once.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harken import config
from harken.encode.parallel import encoding_progress
from harken.errors import UserError
from harken.files import (
    LOCK,
    appended,
    json_text,
    locked_folder,
    remove_folder,
    remove_leftovers,
    replacing,
    write_text,
)
from harken.layers.depth import freeze_layers
from harken.provenance import check_data, check_recipe, provenance, recorded_threads
from harken.python_examples import EXAMPLES, Examples, name_examples, write_examples
from harken.recipe import Recipe, frozen_layers, task_of
from harken.report.markup import visible_text
from harken.report.model_card import model_card
from harken.report.run_page import run_report
from harken.run import Run, load
from harken.run_folder import (
    CARD,
    CHECKPOINTS,
    LOG,
    METRICS,
    MODEL,
    PROVENANCE,
    RECIPE,
    REPORT,
    TENSORBOARD,
    TOKENIZER,
    TOKENS,
    read_log,
)
from harken.start import fit_vocabulary, load_starting_weights, starting_folder, write_origins
from harken.tasks.prediction import Evaluation
from harken.tasks.task import Splits
from harken.training.checkpoint import model_state, write_digests, write_weights
from harken.training.distributed import (
    agree,
    alone,
    is_elastic,
    main_first,
    on_main,
    raise_on_all,
    require_equal,
    set_threads,
    world,
)
from harken.training.loop import (
    EvaluationDone,
    Event,
    Stage,
    StepDone,
    Training,
    check_micro_batches,
    stage_configs,
)
from harken.training.memory import PREDICTING, TRAINING, check_model_size
from harken.training.progress import training_progress
from harken.training.runtime import check_precision, choose_device, configure_process
from harken.training.sharding import build_sharded, uses_sharding
from harken.training.signals import Interrupted, StopSignals, run_interruptibly, stop_signals
from harken.training.tracking import require_trackers, tensorboard_events
from harken.version import __version__

Listener = Callable[[Event], None]
RESULTS = (METRICS, CARD, REPORT)  # written after training


def train(
    recipe: Recipe,
    folder: str | PathLike[str],
    *,
    examples: Examples | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    progress: bool | None = None,
) -> Run:
    """Train a model from a recipe and return its run.

    Arguments:
        recipe: as `harken.load_recipe` returns it.
        folder: the run folder to write.
        examples: examples that replace the files `train`, `dev`, `test` or `pretrain` of the
            recipe, by these names. Each example is a mapping from columns to values. They are
            written to the folder `examples` of the run.
        resume: continue the interrupted run in this folder, or load it if it is finished.
        listener: called with every event of training.
        progress: show one line on stderr; None shows it if stderr is a terminal or a notebook.

        run = harken.train(harken.load_recipe("recipe.toml"), "runs/mine")
    """
    folder, resume = Path(folder), resume or is_elastic()
    if examples is not None:
        recipe = name_examples(recipe, folder, examples)
    main = world().is_main
    listeners = [] if listener is None or not main else [listener]
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signals())
        title = visible_text(folder.name)
        listeners.append(stack.enter_context(training_progress(title, progress and main)))
        stack.enter_context(encoding_progress(title, progress if main else False))
        check_processes(recipe)
        on_main(lambda: require_trackers(recipe.training.track))
        if main and "tensorboard" in recipe.training.track:
            listeners.append(stack.enter_context(tensorboard_events(folder / TENSORBOARD)))
        on_main(lambda: check_run_folder(recipe, folder, resume=resume))
        on_main(lambda: stack.enter_context(write_examples(recipe, folder, examples or {})))
        recorded = recorded_threads(folder) if (folder / RECIPE).exists() else 0
        set_threads(recipe.training.runtime.threads or recorded)
        device, splits = agree(lambda: read_data(recipe, folder))
        claim = claimed_folder(recipe, folder, splits, resume=resume)
        on_main(lambda: stack.enter_context(claim))
        agree(lambda: check_shared(folder))
        if on_main(lambda: (folder / MODEL).exists()):
            run = load(folder, recipe.training.runtime.device)
        else:
            run = _train_stages(recipe, folder, splits, device, listeners, stop)
        if on_main(lambda: not all((folder / name).exists() for name in RESULTS)):
            finish(run)
        return run


def check_processes(recipe: Recipe) -> None:
    """Raise if the processes differ in version or recipe, or cannot train this recipe together."""
    same = {"Harken": __version__, "PyTorch": torch.__version__, "the recipe": config.dumps(recipe)}
    require_equal(same, fix="start the same recipe with the same versions on every node")
    stages = [(name, stage) for name, stage in stage_configs(recipe.training) if stage.steps > 0]
    agree(lambda: check_micro_batches(stages, world().size))
    runtime = recipe.training.runtime
    if uses_sharding(runtime) and runtime.compile:
        error = UserError(
            "training.runtime.compile = true does not support training.runtime.reduction = "
            '"sharded"',
            fix="set training.runtime.compile = false",
        )
        raise_on_all(error)


def check_shared(folder: Path) -> None:
    """Raise if this process does not see the run folder that rank 0 has written."""
    if not (folder / RECIPE).exists():
        raise UserError(
            f"{folder}: the run folder of rank 0 is not visible",
            fix="use a folder on a file system that all nodes share",
        )


def read_data(recipe: Recipe, folder: Path) -> tuple[torch.device, Splits[Any]]:
    """Choose the device and read the data; report errors before the folder is claimed."""
    device = choose_device(recipe.training.runtime.device)
    splits = task_of(recipe).read_splits(recipe)
    if not (folder / MODEL).exists():
        check_precision(recipe.training.runtime, device)
        list(splits.values())
    return device, splits


def check_run_folder(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    """Raise unless the folder is empty or, with `resume`, holds a run of this recipe."""
    if not (folder / RECIPE).exists():
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        # A process killed before recipe.toml was complete leaves only these.
        started = {LOCK, PROVENANCE, EXAMPLES}
        if {name for name in names if not name.endswith(".unfinished")} - started:
            raise UserError(
                f"{folder}: the folder holds files that are not a run (expected a new or empty "
                "folder)",
                fix="choose another run folder",
            )
        return
    if not resume:
        raise UserError(
            f"{folder}: the folder already holds a run",
            fix="resume it with resume=True (command line: --resume), or choose another run folder",
        )
    check_recipe(folder, recipe)


@contextmanager
def claimed_folder(
    recipe: Recipe, folder: Path, splits: Splits[Any], *, resume: bool
) -> Iterator[None]:
    """Lock the folder and write or check recipe and provenance.

    A new run that fails before its first step is removed. It is kept, and can be resumed, if it has
    begun to encode the data and the failure is not wrong input, but for example a full disk.
    """
    with locked_folder(folder):
        check_run_folder(recipe, folder, resume=resume)  # another process may have been here
        remove_leftovers(folder)
        is_new = not (folder / RECIPE).exists()
        if is_new:
            write_text(folder / PROVENANCE, json.dumps(provenance(recipe, splits), indent=1))
            write_text(folder / RECIPE, config.dumps(recipe))
        elif not (folder / MODEL).exists():
            check_data(folder, provenance(recipe, splits))
        try:
            yield
        except Exception as error:
            has_encoded = (folder / TOKENS).exists() and not isinstance(error, UserError)
            if is_new and not has_encoded and not (folder / LOG).exists():
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
    configure_process(device)
    on_main(lambda: _fit_vocabulary(recipe, folder, splits))
    vocabulary = task.vocabulary_type.load(folder / TOKENIZER)
    build = partial(task.build, recipe, vocabulary.sizes)
    runtime = recipe.training.runtime
    sharded = uses_sharding(runtime)
    # A sharded model is gathered to be evaluated.
    needed = max(TRAINING // world().size, PREDICTING) if sharded else TRAINING
    check_size = partial(check_model_size, bytes_per_parameter=needed, device=device)
    agree(lambda: check_size(build, "recipe"))
    model = agree(lambda: build_sharded(build, device)) if sharded else build().to(device)
    agree(lambda: freeze_layers(model, frozen_layers(recipe)))
    stages = main_first(lambda: task.stages(recipe, splits, vocabulary, folder / TOKENS))
    training = Training(
        model,
        stages,
        seed=recipe.seed,
        runtime=runtime,
        device=device,
        checkpoints=folder / CHECKPOINTS,
        stop=stop,
    )
    if not agree(training.resume):
        agree(lambda: _start_from(recipe, folder, model, listeners))
    on_main(lambda: _cut_log(folder / LOG, stages, training))
    with stop.deferred(), _log(folder / LOG) as write_line:
        try:
            for event in training:
                if isinstance(event, StepDone | EvaluationDone):
                    kind = "evaluated" if isinstance(event, EvaluationDone) else "stepped"
                    write_line(json_text({"event": kind, **asdict(event)}))
                for listener in listeners:
                    listener(event)
                training.check_stop()
        except Interrupted:
            training.save()
            raise
    write_model = partial(_write_model, folder, model)
    write_model() if sharded else on_main(write_model)
    if sharded:
        del training, model
        return main_first(lambda: replace(load(folder, runtime.device), splits=splits))
    return Run(folder, recipe, task, splits, vocabulary, model.eval())


def _start_from(
    recipe: Recipe, folder: Path, model: nn.Module, listeners: Sequence[Listener]
) -> None:
    """Load the weights of `model.start_from`, if it is set."""
    source = starting_folder(recipe)
    if source is None:
        return
    loaded = load_starting_weights(model, source)
    if world().is_main:
        write_origins(folder, recipe, loaded)
    for listener in listeners:
        listener(loaded)


def _fit_vocabulary(recipe: Recipe, folder: Path, splits: Splits[Any]) -> None:
    if (folder / TOKENIZER).exists():
        return
    vocabulary = run_interruptibly(lambda: fit_vocabulary(recipe, splits["train"]))
    write_text(folder / TOKENIZER, vocabulary.to_json())


def _write_model(folder: Path, model: nn.Module) -> None:
    """Write the weights and their digests on rank 0; all ranks call this for a sharded model."""
    if not world().is_main:
        write_weights(folder / MODEL, model_state(model))
        return
    with replacing(folder / MODEL) as unfinished:
        write_weights(unfinished, model_state(model))
        # The manifest comes first: weights without one would be a run that cannot be loaded.
        write_digests(folder, {RECIPE: RECIPE, TOKENIZER: TOKENIZER, MODEL: unfinished.name})


@contextmanager
def _log(path: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that appends a line to the log; only rank 0 writes it."""
    if not world().is_main:
        yield lambda line: None
        return
    with appended(path) as write_line:
        yield write_line


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
    on_main(lambda: _write_results(run, evaluation))


def _write_results(run: Run, evaluation: Evaluation) -> None:
    with alone():
        write_text(run.folder / METRICS, json_text(metrics_record(run, evaluation), indent=1))
        write_text(run.folder / CARD, model_card(run, evaluation))
        write_text(run.folder / REPORT, run_report(run, evaluation))


def metrics_record(run: Run, evaluation: Evaluation) -> dict[str, object]:
    """Return the JSON object of `evaluate --json`."""
    metrics = {name: asdict(estimate) for name, estimate in evaluation.metrics.items()}
    return {"task": run.recipe.task, "n": evaluation.n, "metrics": metrics}
