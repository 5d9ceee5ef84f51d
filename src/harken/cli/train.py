"""Train a model from a recipe, or resume an interrupted run.

The run folder is `runs/NAME` for `NAME.toml` unless --run is given.
"""

import argparse
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
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Train, then print the figures."""
    from harken.cli.output import figures, remark
    from harken.pipeline import train
    from harken.recipe import load_recipe
    from harken.run import RECIPE, REPORT, read_metrics
    from harken.training.signals import Interrupted

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
        train(recipe, folder, resume=options.resume, progress=True)
    except Interrupted as stop:
        if (folder / RECIPE).exists():
            remark(f"harken: {stop}; resume with `harken train {folder / RECIPE} --resume`")
        else:
            remark(f"harken: {stop} before anything was written")
        return 128 + stop.number
    figures(read_metrics(folder), as_json=options.json)
    remark(f"report: {folder / REPORT}")
    return 0
