"""The runs that the server shows, by opaque ids, and the models in memory."""

import hashlib
import time
import tomllib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from harken.errors import HarkenError, UserError
from harken.inputs import is_file, is_folder, read_input
from harken.measure.interval import (
    Estimate,
    format_interval,
    format_value,
    metric_name,
)
from harken.run import Run, load
from harken.run_folder import MODEL, PROVENANCE, RECIPE, read_metrics
from harken.run_list import MAX_RECIPE, ListedRun, list_run, list_runs
from harken.serve.errors import ApiError

REFRESH_SECONDS = 1.0
INPUTS = {"transcribe": "sounds", "caption": "images"}
LABELED = {"text": "lines", "sound": "sounds", "image": "images"}


class RunFolder(NamedTuple):
    """A run that the server shows."""

    id: str
    name: str
    folder: Path


class RunLibrary:
    """The runs below the folders that the user named."""

    def __init__(self, paths: Sequence[Path], loaded_runs: int) -> None:
        for path in paths:
            if not is_folder(path):
                problem = f"{path}: folder not found"
                raise UserError(problem, fix="name a run, or a folder that contains runs")
        self._paths, self._lock = [path.resolve() for path in paths], Lock()
        self._listed: list[tuple[RunFolder, ListedRun]] = []
        self._listed_at = -REFRESH_SECONDS
        self._loaded: OrderedDict[tuple[str, int], Run] = OrderedDict()
        self._loaded_runs = loaded_runs

    def list_json(self) -> list[dict[str, Any]]:
        """Return all runs as JSON."""
        return [run_json(run, listed) for run, listed in self._refresh()]

    def find(self, run_id: str) -> RunFolder:
        """Return the run with an id; only ids of listed runs exist."""
        for listed in (self._listed, self._refresh()):
            for run, _ in listed:
                if run.id == run_id:
                    return run
        raise ApiError(404, "there is no run with this id", fix="see /api/runs")

    def describe(self, run_id: str) -> dict[str, Any]:
        """Return a run as JSON, with its recipe and all metrics."""
        run = self.find(run_id)
        record = run_json(run, list_run(run.folder, run.name))
        record |= {"recipe": None, "metrics": []}
        with suppress(HarkenError):
            recipe = read_input(run.folder / RECIPE, "a recipe", max_bytes=MAX_RECIPE)
            record["recipe"] = recipe.decode("utf-8", "replace")
            metrics = read_metrics(run.folder)["metrics"]
            record["metrics"] = [
                estimate_json(name, Estimate(**values)) for name, values in metrics.items()
            ]
        return record

    def version(self, run_id: str) -> tuple[str, int]:
        """Return the id of a finished run with the time of its weights."""
        return run_id, (self.find(run_id).folder / MODEL).stat().st_mtime_ns

    def load(self, run_id: str) -> Run:
        """Return a finished run; call it in the model thread only."""
        found = self.find(run_id)
        if not is_file(found.folder / MODEL):
            fix = "wait until training has finished"
            raise ApiError(409, "the run has not finished training", fix=fix, kind="not_ready")
        key = self.version(run_id)
        if key not in self._loaded:
            while len(self._loaded) >= self._loaded_runs:
                self._loaded.popitem(last=False)
            self._loaded[key] = load(found.folder)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _refresh(self) -> list[tuple[RunFolder, ListedRun]]:
        with self._lock:
            if time.monotonic() - self._listed_at >= REFRESH_SECONDS:
                self._listed = list(self._scan())
                self._listed_at = time.monotonic()
            return self._listed

    def _scan(self) -> Iterator[tuple[RunFolder, ListedRun]]:
        seen = set()
        for path in self._paths:
            if is_file(path / PROVENANCE) or (is_file(path / RECIPE) and is_file(path / MODEL)):
                found: Iterator[ListedRun] = iter([list_run(path, path.name)])
                base = path.parent
            else:
                found, base = list_runs(path), path
            for listed in found:
                folder = base / listed.run
                run = RunFolder(run_id_of(folder), listed.run, folder)
                if run.id not in seen:
                    seen.add(run.id)
                    yield run, listed


def run_id_of(folder: Path) -> str:
    """Return the id of a run, which does not reveal its path."""
    return hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def run_json(run: RunFolder, listed: ListedRun) -> dict[str, Any]:
    """Return a listed run for the API."""
    record = asdict(listed)
    del record["run"], record["metric"], record["estimate"]
    metric = None
    if listed.metric is not None and listed.estimate is not None:
        metric = estimate_json(listed.metric, listed.estimate)
    if listed.problem is not None:
        record["problem"] = listed.problem.replace(str(run.folder), run.name)
    return {
        "id": run.id,
        "name": run.name,
        **record,
        "input": input_form(run.folder, listed.task),
        "metric": metric,
    }


def estimate_json(name: str, estimate: Estimate) -> dict[str, Any]:
    """Return a metric with its title and its text."""
    text = format_value(estimate.value, estimate.unit)
    interval = format_interval(estimate)
    return {
        "name": name,
        "title": metric_name(name),
        **asdict(estimate),
        "text": f"{text} ({interval})" if interval[:1].isdigit() else text,
    }


def input_form(folder: Path, task: str | None) -> str | None:
    """Return what the inputs of a run are: lines, sounds or images."""
    if task == "classify":
        with suppress(HarkenError, ValueError, KeyError, TypeError, RecursionError):
            text = read_input(folder / RECIPE, "a recipe", max_bytes=MAX_RECIPE).decode("utf-8")
            return LABELED[tomllib.loads(text)["data"]["input"]]
        return None
    return None if task is None else INPUTS.get(task, "lines")
