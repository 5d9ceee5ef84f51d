"""`harken train`: train a model from a recipe, with one or several seeds, and print the metrics."""

import argparse
from dataclasses import asdict
from pathlib import Path

from harken.cli.output import estimate_cells, print_json, print_metrics, print_note, print_table
from harken.measure.interval import format_value, metric_name
from harken.measure.seed_means import SeedEstimate
from harken.pipeline import train
from harken.recipe import Recipe, load_recipe
from harken.run_folder import RECIPE, REPORT, read_metrics
from harken.seeds import SeedMetrics, train_seeds
from harken.training.distributed import agree
from harken.training.signals import Interrupted


def run(options: argparse.Namespace) -> int:
    """Train and print the metrics; if a signal interrupts training, return its exit code."""
    values = {"seed": options.seed, "training.runtime.device": options.device}
    given = [f"{key}={value}" for key, value in values.items() if value is not None]
    folder = options.folder
    if folder is None:
        inside_run = options.resume and options.recipe.name == RECIPE
        folder = options.recipe.parent if inside_run else Path("runs") / options.recipe.stem
    recipe = agree(lambda: load_recipe(options.recipe, [*options.sets, *given]))
    try:
        if options.seeds is not None:
            _print_seeds(options, recipe, folder)
            return 0
        train(recipe, folder, resume=options.resume, progress=True)
    except Interrupted as stop:
        _print_how_to_resume(options, recipe, folder, stop)
        return 128 + stop.number
    (print_json if options.json else print_metrics)(read_metrics(folder))
    print_note(f"report: {folder / REPORT}")
    return 0


def _print_how_to_resume(
    options: argparse.Namespace, recipe: Recipe, folder: Path, stop: Interrupted
) -> None:
    seeds = options.seeds is not None
    stored = (folder / f"seed-{recipe.seed}" if seeds else folder) / RECIPE
    if not stored.exists():
        print_note(f"harken: {stop} before anything was written")
        return
    group = f"--seeds {options.seeds} --run {folder} " if seeds else ""
    print_note(f"harken: {stop}; resume with `harken train {stored} {group}--resume`")


def _print_seeds(options: argparse.Namespace, recipe: Recipe, folder: Path) -> None:
    """Train with several seeds and print the mean, its interval and the metrics of each seed."""
    result = train_seeds(recipe, folder, options.seeds, resume=options.resume, progress=True)
    if options.json:
        print_json(asdict(result))
        return
    header = ("metric", "mean", "std", "95 % interval", *(f"seed {seed}" for seed in result.seeds))
    print_table(header, [_seed_cells(*item) for item in result.metrics.items()])
    print_note(_interval_note(result))
    print_note(f"runs: {folder}")


def _seed_cells(name: str, estimate: SeedEstimate) -> tuple[str, ...]:
    figures = (estimate.std, *estimate.values)
    std, *values = (format_value(figure, estimate.unit) for figure in figures)
    mean, interval = estimate_cells(estimate)
    return metric_name(name), mean, std, interval, *values


def _interval_note(result: SeedMetrics) -> str:
    if result.same_examples:
        return f"intervals over {len(result.seeds)} seeds and {result.n} examples"
    return (
        f"intervals over {len(result.seeds)} seeds, each with a dev split of its own; a file for "
        "data.dev gives all seeds the same"
    )
