"""Train a recipe into a run folder, or go on with one that was stopped.

The folder is `runs/NAME` for `NAME.toml` unless --run says otherwise.
"""

import argparse
import json
import signal
from pathlib import Path

EPILOG = """examples:
  harken train recipe.toml
  harken train recipe.toml --set model.width=128 --set training.pretrain.steps=500 --run runs/small
  harken train runs/small/recipe.toml --resume
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken train`."""
    parser.add_argument("recipe", type=Path, metavar="RECIPE.toml")
    parser.add_argument("--set", action="append", default=[], metavar="key.key=value", dest="sets")
    parser.add_argument("--run", type=Path, metavar="DIR", dest="folder")
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"))
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Train, then print the figures."""
    from harken.cli.output import figures, remark, training_progress
    from harken.pipeline import Interrupted, train
    from harken.recipe import load_recipe
    from harken.run import METRICS, RECIPE, REPORT

    overrides = [*options.sets]
    if options.seed is not None:
        overrides.append(f"seed={options.seed}")
    if options.device is not None:
        overrides.append(f"training.machine.device={options.device}")
    folder = options.folder
    if folder is None:
        inside_run = options.resume and options.recipe.name == RECIPE
        folder = options.recipe.parent if inside_run else Path("runs") / options.recipe.stem
    recipe = load_recipe(options.recipe, overrides)
    try:
        with training_progress(folder.name) as listener:
            train(recipe, folder, resume=options.resume, listener=listener)
    except Interrupted as stop:
        name = signal.Signals(stop.number).name
        remark(f"harken: {name}: saved; go on with `harken train {folder / RECIPE} --resume`")
        return 128 + stop.number
    measured = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    figures(measured, as_json=options.json)
    remark(f"report: {folder / REPORT}")
    return 0
