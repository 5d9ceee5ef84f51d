"""A run folder: what training left behind, loaded again to predict and measure.

recipe.toml         effective, the one truth        tokenizer.json   what was fitted to the data
model.safetensors   weights                         manifest.json    SHA-256 of these three
metrics.json        figures on the dev split        log.jsonl        one JSON object a line
README.md           model card                      report.html      the page for people
checkpoints/        to resume from                  tokens/          encoded texts
provenance.json     recipe, data digests and versions that the run was started with
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from torch import nn

from harken.config import MAX_STEPS
from harken.decode.search import SearchConfig
from harken.errors import Failure, UserError
from harken.inputs import is_file, is_folder, open_input, read_json, shown
from harken.measure.interval import Estimate, Unit
from harken.recipe import Recipe, load_recipe, task_of
from harken.strict_json import ERRORS, is_finite, parsed, text_of
from harken.tasks.task import (
    Conditioned,
    Evaluation,
    Fitted,
    Glimpse,
    Prediction,
    Task,
    Timing,
    Trained,
)
from harken.training.checkpoint import check_manifest, load_weights, set_weights
from harken.training.machine import Device, choose_device, prepare
from harken.training.memory import PREDICTING, check_model_size

RECIPE, TOKENIZER, MODEL = "recipe.toml", "tokenizer.json", "model.safetensors"
METRICS, LOG, CARD, REPORT = "metrics.json", "log.jsonl", "README.md", "report.html"
CHECKPOINTS, TOKENS = "checkpoints", "tokens"
MAX_LINE = 2**20  # bytes of a line of the log
MAX_METRICS = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A trained model with all that it needs."""

    folder: Path
    recipe: Recipe
    task: Task
    fitted: Fitted
    model: nn.Module

    @property
    def trained(self) -> Trained:
        return Trained(recipe=self.recipe, fitted=self.fitted, model=self.model)

    @property
    def search(self) -> SearchConfig | None:
        """How outputs are sought; None for a task that does not search."""
        found: SearchConfig | None = getattr(self.recipe, "search", None)
        return found

    def searching(self, search: SearchConfig) -> "Run":
        """The same run with another search."""
        assert self.search is not None, "the task does not search"
        changed: Any = self.recipe
        return replace(self, recipe=replace(changed, search=search))

    def predict(
        self, inputs: Sequence[str], nbest: int = 1, indices: Sequence[int] | None = None
    ) -> list[Prediction]:
        """One prediction for each input, in order.

        A sample depends on the seed and the index of its input. `indices` are those of the inputs
        in a longer list of which they are a part; by default they are 0, 1, 2, …
        """
        return list(self.task.predict(self.trained, inputs, nbest, indices))

    def predict_times(
        self, inputs: Sequence[str], indices: Sequence[int] | None = None
    ) -> Iterator[Prediction]:
        """The same with the seconds of every word, for a task that hears."""
        assert isinstance(self.task, Timing), "the task knows no times"
        return self.task.predict_times(self.trained, inputs, indices)

    def evaluate(self, split: str = "dev", files: Sequence[Path] = ()) -> Evaluation:
        """Figures on a split of the recipe, or on other files of the same form."""
        return self.task.evaluate(self.trained, self.examples(split, files))

    def evaluate_under(
        self, condition: str, split: str = "dev", files: Sequence[Path] = ()
    ) -> Evaluation:
        """The same under a condition, for a task that knows some."""
        assert isinstance(self.task, Conditioned), "the task knows no conditions"
        return self.task.evaluate_under(self.trained, self.examples(split, files), condition)

    def examples(self, split: str, files: Sequence[Path] = ()) -> Any:
        """Of a split of the recipe, or of other files of the same form."""
        if files:
            return self.task.read_files(self.recipe, files)
        splits = self.task.read(self.recipe)
        if split not in splits:
            raise UserError(
                f"{self.folder / RECIPE}: found no data.{split}, wanted one to evaluate on",
                fix=f"use --split {' or '.join(sorted(splits.keys() - {'train'}))}, or --data FILE",
            )
        return splits[split]

    def glimpse(self, evaluation: Evaluation) -> Glimpse | None:
        """An example as the model meets it, for a look inside."""
        return self.task.glimpse(self.trained, evaluation)


def require_run(folder: Path) -> None:
    """Tell a folder that is no run from one that has not finished."""
    if not is_folder(folder):
        raise UserError(
            f"run folder not found: {shown(folder)}",
            fix="train one with `harken train RECIPE.toml --run DIR`",
        )
    if not is_file(folder / RECIPE):
        raise UserError(
            f"{folder}: found no {RECIPE} in it, wanted a run folder",
            fix="name the folder that `harken train` wrote",
        )
    if not is_file(folder / MODEL):
        raise UserError(
            f"{folder}: found a run that has not finished, wanted a trained one",
            fix=f"finish it with `harken train {folder / RECIPE} --resume`",
        )


def read_log(path: Path) -> list[dict[str, Any]]:
    """The events of a log, without lines that a kill or a damaged disk left unreadable."""
    if not is_file(path):
        return []
    events = []
    with open_input(path, "a log of training") as file:
        for line in iter(partial(file.readline, MAX_LINE), b""):
            with suppress(*ERRORS):
                event = parsed(line.decode("utf-8"))
                if _is_event(event):
                    events.append(event)
    return events


def _is_event(event: Any) -> bool:
    match event:
        case {"event": "stepped", "stage": str(), "step": int(step), "loss": float(loss)}:
            return math.isfinite(loss) and 0 <= step <= MAX_STEPS
        case {"event": "evaluated", "stage": str(), "step": int(step), "value": float()}:
            return 0 <= step <= MAX_STEPS
    return False


def read_metrics(folder: Path) -> dict[str, Any]:
    """The figures that training stored on the dev split."""
    path = folder / METRICS
    try:
        stored = read_json(path, "the metrics of a run", max_bytes=MAX_METRICS)
        for estimate in stored["metrics"].values():
            numbers = (estimate["value"], estimate["low"], estimate["high"])
            if not all(map(is_finite, numbers)) or estimate["unit"] not in get_args(Unit):
                raise ValueError("a metric is not a number with an interval and a unit")
            Estimate(**estimate)
        task, count = text_of(METRICS, "task", stored["task"]), stored["n"]
        return {"task": task, "n": count, "metrics": dict(stored["metrics"])}
    except (UserError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(
            f"{path}: cannot be read ({str(error)[:200]})",
            fix=f"delete it; `harken train {folder / RECIPE} --resume` evaluates the model again",
        ) from None


def load(folder: str | Path, device: Device = "auto") -> Run:
    """A finished run, its files checked against the manifest."""
    folder = Path(folder)
    require_run(folder)
    check_manifest(folder, (RECIPE, TOKENIZER, MODEL))
    chosen = choose_device(device)
    prepare(chosen)
    recipe = load_recipe(folder / RECIPE)
    task = task_of(recipe)
    fitted = task.restore(folder / TOKENIZER)
    check_model_size(
        lambda: task.build(recipe, fitted),
        str(folder / RECIPE),
        bytes_per_parameter=PREDICTING,
        device=chosen,
    )
    model = task.build(recipe, fitted)
    set_weights(model, load_weights(folder / MODEL), folder / MODEL)
    return Run(
        folder=folder, recipe=recipe, task=task, fitted=fitted, model=model.to(chosen).eval()
    )
