"""`harken evaluate`: print every metric with its interval."""

import argparse
from pathlib import Path

from harken.augment.conditions import parse_condition
from harken.cli.engine import load_run
from harken.cli.output import (
    format_estimate,
    print_json,
    print_metrics,
    print_note,
    print_table,
)
from harken.cli.search_options import speech_only_error
from harken.errors import UserError
from harken.pipeline import metrics_record
from harken.training.distributed import agree


def run(options: argparse.Namespace) -> None:
    """Print the metrics of the clean data and of each condition."""
    files, split = data_files(options), options.split or "dev"
    loaded = agree(lambda: load_run(options))
    if options.condition and not loaded.task.recognizes_speech:
        raise speech_only_error("--condition", loaded)
    for condition in options.condition:
        parse_condition(condition)
    clean = loaded.evaluate(split, files)
    if truncated := [item.truncation for item in clean.predictions if item.truncation]:
        count = f"{len(truncated)} of {clean.n} inputs"
        print_note(f"{count} are too long for the model and were truncated; first: {truncated[0]}")
    record = metrics_record(loaded, clean)
    by_condition = {name: loaded.evaluate(split, files, name) for name in options.condition}
    if options.json:
        metrics = {
            name: metrics_record(loaded, by_condition[name])["metrics"] for name in by_condition
        }
        print_json({**record, "conditions": metrics} if by_condition else record)
        return
    print_metrics(record)
    if by_condition:
        rows = [
            (name, *(format_estimate(evaluation.metrics[key]) for key in ("wer", "cer")))
            for name, evaluation in {"clean": clean, **by_condition}.items()
        ]
        print_table(("condition", "WER", "CER"), rows)


def data_files(options: argparse.Namespace) -> list[Path]:
    """Return the files to evaluate on, or an empty list for a split of the recipe."""
    given = [name for name in ("split", "data", "source", "target") if getattr(options, name)]
    if given in ([], ["split"]):
        return []
    if given == ["data"]:
        return [options.data]
    if given == ["source", "target"]:
        return [options.source, options.target]
    got = " and ".join(map("--{}".format, given))
    problem = f"data options: expected one complete data set, got {got}"
    raise UserError(problem, fix="use --split, or --data, or --source together with --target")
