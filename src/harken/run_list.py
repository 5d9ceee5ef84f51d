"""List the runs below a folder, from small files and headers, without PyTorch."""

import math
import os
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from harken.errors import HarkenError, UserError, error_text
from harken.files import is_locked
from harken.inputs import exists, is_file, is_folder, open_input, read_input, safetensors_header
from harken.measure.interval import Estimate
from harken.run_folder import (
    CHECKPOINTS,
    LOG,
    MAX_LINE,
    METRICS,
    MODEL,
    PROVENANCE,
    RECIPE,
    read_events,
    read_metrics,
)

MAX_RECIPE = 2**20
# Endings of the names of stored tensors that are not parameters.
BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "slopes")

Result = TypeVar("Result")
State = Literal["finished", "training", "interrupted", "damaged"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """A run folder; None for what it does not have yet, or what cannot be read."""

    run: str  # path below the listed folder
    task: str | None
    state: State
    stage: str | None  # of the last logged step, unless the run has finished
    step: int | None
    steps: int | None  # of the stage
    metric: str | None  # name of the main metric
    estimate: Estimate | None
    parameters: int | None
    bytes: int  # on the disk
    date: str  # of the last change, in local time
    problem: str | None  # why the run is damaged


def list_runs(folder: Path) -> Iterator[ListedRun]:
    """Yield the runs in a folder and its subfolders, sorted by path."""
    if not is_folder(folder):
        raise UserError(f"{folder}: folder not found", fix="name a folder that contains runs")
    for path, folders, files in os.walk(folder):
        folders.sort()
        if PROVENANCE in files or {RECIPE, MODEL} <= {*files}:
            folders.clear()  # runs inside of a run, as in `harken demo`, are not listed
            yield list_run(Path(path), Path(path).relative_to(folder).as_posix())


def list_run(folder: Path, name: str) -> ListedRun:
    """Return the state, sizes and main metric of a run folder."""
    problems: list[str] = []

    def read(reader: Callable[[], Result], default: Result) -> Result:
        try:
            return reader()
        except HarkenError as error:
            problems.append(error.message)
        except OSError as error:
            problems.append(error_text(error))
        return default

    has_model, is_evaluated = is_file(folder / MODEL), exists(folder / METRICS)
    task = read(partial(read_task, folder / RECIPE), None)
    nothing: dict[str, Any] = {}
    event = nothing if has_model else read(partial(last_step, folder / LOG), nothing)
    record = read(partial(read_metrics, folder), nothing) if is_evaluated else nothing
    metrics = record.get("metrics", nothing)
    metric = next(iter(metrics), None)
    state: State = "finished" if has_model and is_evaluated else "interrupted"
    parameters = read(partial(count_parameters, folder), None)
    if is_locked(folder):
        state, problems = "training", []
    elif problems:
        state = "damaged"
    size, changed = disk_usage(folder)
    return ListedRun(
        run=name,
        task=task,
        state=state,
        stage=event.get("stage"),
        step=event.get("step"),
        steps=event.get("steps"),
        metric=metric,
        estimate=None if metric is None else Estimate(**metrics[metric]),
        parameters=parameters,
        bytes=size,
        date=datetime.fromtimestamp(changed).isoformat(" ", "seconds"),
        problem=problems[0] if problems else None,
    )


def read_task(path: Path) -> str:
    """Return the task of a recipe; the other keys are not checked."""
    try:
        text = read_input(path, "a recipe", max_bytes=MAX_RECIPE).decode("utf-8")
        task = tomllib.loads(text)["task"]
    except (ValueError, KeyError, RecursionError) as error:
        fix = "restore it from a copy"
        raise UserError(f"{path}: the recipe cannot be read ({error})", fix=fix) from None
    return str(task)


def last_step(path: Path) -> dict[str, Any]:
    """Return the last step in a log; empty if there is none. Only the end of the log is read."""
    if not is_file(path):
        return {}
    with open_input(path, "a log of training") as file:
        file.seek(max(0, path.stat().st_size - MAX_LINE))
        events = [event for event in read_events(file) if event["event"] == "stepped"]
    return events[-1] if events else {}


def count_parameters(folder: Path) -> int | None:
    """Return the number of parameters of the model or of a checkpoint; None without either."""
    checkpoints = sorted((folder / CHECKPOINTS).glob(f"stage-*/{MODEL}"))
    files = [folder / MODEL] if is_file(folder / MODEL) else checkpoints[-1:]
    if not files:
        return None
    tensors = safetensors_header(files[0])
    return sum(
        math.prod(tensor.shape) for name, tensor in tensors.items() if not name.endswith(BUFFERS)
    )


def disk_usage(folder: Path) -> tuple[int, float]:
    """Return the bytes of all files in a folder, and the time of the last change of one."""
    size, changed = 0, folder.stat().st_mtime
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a checkpoint may be removed meanwhile
                status = (Path(path) / name).lstat()
                size, changed = size + status.st_size, max(changed, status.st_mtime)
    return size, changed
