"""`harken train`: train a model from a recipe and print the metrics."""

import argparse
from pathlib import Path

from harken.cli.output import print_json, print_metrics, print_note
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.run import RECIPE, REPORT, read_metrics
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
        train(recipe, folder, resume=options.resume, progress=True)
    except Interrupted as stop:
        if (folder / RECIPE).exists():
            print_note(f"harken: {stop}; resume with `harken train {folder / RECIPE} --resume`")
        else:
            print_note(f"harken: {stop} before anything was written")
        return 128 + stop.number
    (print_json if options.json else print_metrics)(read_metrics(folder))
    print_note(f"report: {folder / REPORT}")
    return 0
