"""The files of a run folder, without PyTorch.

recipe.toml         the effective recipe            tokenizer.json   the vocabulary
model.safetensors   weights                         log.jsonl        one JSON object per line
metrics.json        metrics on the dev split
manifest.json       SHA-256 of recipe.toml, tokenizer.json and model.safetensors
README.md           model card                      report.html      report
checkpoints/        to resume from                  tokens/          encoded training data
start.json          origin of each tensor, if the run started from other weights
provenance.json     recipe, data digests and versions at the start of the run
examples/           examples that were passed to `harken.train`
tensorboard/        event files, if training.track = ["tensorboard"]

A folder of seeds has the runs seed-0/, seed-1/, … of one recipe, and metrics.json with their means.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, get_args

from harken.config import MAX_STEPS
from harken.errors import Failure, UserError
from harken.inputs import exists, is_file, is_folder, open_input, read_json, short_path
from harken.measure.interval import Estimate, Unit
from harken.strict_json import JSON_ERRORS, is_finite, parse_json, text_of

RECIPE, TOKENIZER, MODEL = "recipe.toml", "tokenizer.json", "model.safetensors"
METRICS, LOG, CARD, REPORT = "metrics.json", "log.jsonl", "README.md", "report.html"
CHECKPOINTS, TOKENS, TENSORBOARD = "checkpoints", "tokens", "tensorboard"
PROVENANCE = "provenance.json"
SEED_FOLDER = re.compile(r"seed-([0-9]{1,19})")
MAX_LINE = 2**20  # bytes of a line of the log
MAX_METRICS = 2**20


def require_run(folder: Path) -> None:
    """Raise unless the folder holds a finished run."""
    if not exists(folder):
        raise UserError(
            f"run folder not found: {short_path(folder)}",
            fix="check the name, or train a model with `harken train RECIPE.toml`",
        )
    if not is_file(folder / RECIPE):
        seeds = list(seed_folders(folder).values())
        reason = f"it has no {RECIPE}" if is_folder(folder) else "it is a file"
        problem = f"not a run folder: {folder} ({reason})"
        fix = "name the folder that training wrote"
        raise UserError(problem, fix=fix if not seeds else f"{fix}, such as {seeds[0]}")
    if not is_file(folder / MODEL):
        message = f"{folder}: training has not finished"
        raise UserError(message, fix=f"finish it with `harken train {folder / RECIPE} --resume`")


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the events of a log, except damaged lines."""
    if not is_file(path):
        return []
    with open_input(path, "a log of training") as file:
        return list(read_events(file))


def read_events(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the events in the rest of a log, except damaged lines."""
    for line in iter(partial(file.readline, MAX_LINE), b""):
        with suppress(*JSON_ERRORS):
            event = parse_json(line.decode("utf-8"))
            if _is_event(event):
                yield event


def _is_event(event: Any) -> bool:
    match event:
        case {"event": "stepped", "stage": str(), "step": int(step), "loss": float(loss)}:
            return math.isfinite(loss) and 0 <= step <= MAX_STEPS
        case {"event": "evaluated", "stage": str(), "step": int(step), "value": float()}:
            return 0 <= step <= MAX_STEPS
    return False


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read the metrics of the dev split that training stored."""
    path = folder / METRICS
    try:
        stored = read_json(path, "the metrics of a run", max_bytes=MAX_METRICS)
        for estimate in stored["metrics"].values():
            numbers = (estimate[key] for key in ("value", "low", "high", "n"))
            finite = all(number is None or is_finite(number) for number in numbers)
            if not finite or estimate["unit"] not in get_args(Unit):
                raise ValueError("a metric is not a number with an interval and a unit")
            Estimate(**estimate)
        task, count = text_of(METRICS, "task", stored["task"]), stored["n"]
        return {"task": task, "n": count, "metrics": dict(stored["metrics"])}
    except (UserError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"no key {error}" if isinstance(error, KeyError) else str(error)[:200]
        raise Failure(
            f"{path}: cannot be read ({reason})",
            fix=f"delete it; `harken train {folder / RECIPE} --resume` evaluates the model again",
        ) from None


def seed_folders(folder: Path) -> dict[int, Path]:
    """Return the runs in a folder of seeds, in order; empty for any other folder."""
    if not is_folder(folder):
        return {}
    names = [SEED_FOLDER.fullmatch(path.name) for path in folder.iterdir()]
    seeds = sorted(int(name[1]) for name in names if name is not None)
    return {seed: folder / f"seed-{seed}" for seed in seeds}
