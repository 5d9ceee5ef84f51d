"""Train one recipe with several seeds, and combine their metrics.

    FOLDER/seed-0/, FOLDER/seed-1/, …    a run folder for each seed
    FOLDER/metrics.json                  the means over the seeds, when all runs have finished

The runs are trained one after the other. A run that has finished is not trained again on resuming,
and all metrics are computed from the run folders, so interruptions do not change the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from harken.config import MAX_SEED
from harken.errors import UserError
from harken.files import json_text, write_text
from harken.measure.seed_means import SeedEstimate, mean_estimates
from harken.pipeline import Listener, check_run_folder, train
from harken.recipe import Recipe
from harken.run import load
from harken.run_folder import METRICS, RECIPE
from harken.training.distributed import is_elastic, on_main
from harken.training.runtime import Device
from harken.training.signals import stop_signals


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedMetrics:
    """Means over the runs of several seeds."""

    task: str
    n: int  # examples of the dev split
    seeds: tuple[int, ...]
    same_examples: bool  # whether all seeds have the same dev split
    metrics: Mapping[str, SeedEstimate]


def train_seeds(
    recipe: Recipe,
    folder: str | PathLike[str],
    seeds: int,
    *,
    resume: bool = False,
    listener: Listener | None = None,
    progress: bool | None = None,
) -> SeedMetrics:
    """Train a recipe with several seeds and return the means of their metrics on the dev split.

    Arguments:
        recipe: as `harken.load_recipe` returns it; its seed is the first one.
        folder: the folder of the runs, which are named seed-0, seed-1, ….
        seeds: the number of runs, two or more.
        resume: continue interrupted runs in this folder, and keep finished ones.
        listener: called with every event of training.
        progress: show one line on stderr; None shows it if stderr is a terminal or a notebook.

        harken.train_seeds(harken.load_recipe("recipe.toml"), "runs/mine", 3).metrics
    """
    folder, numbers = Path(folder), tuple(range(recipe.seed, recipe.seed + seeds))
    if seeds < 2 or numbers[-1] > MAX_SEED:
        raise UserError(
            f"seeds: expected 2 or more, up to seed {MAX_SEED}, got {seeds} from {recipe.seed}",
            fix="change the number of seeds or the first one",
        )
    if (folder / RECIPE).exists():
        raise UserError(
            f"{folder}: the folder is that of a single run (expected a folder for the seeds)",
            fix="name the folder that holds seed-0, seed-1, …, or a new one",
        )
    resume = resume or is_elastic()
    recipes = {folder / f"seed-{seed}": with_seed(recipe, seed) for seed in numbers}
    for run_folder, seed_recipe in recipes.items():
        on_main(partial(check_run_folder, seed_recipe, run_folder, resume=resume))
    with stop_signals():
        for run_folder, seed_recipe in recipes.items():
            train(seed_recipe, run_folder, resume=resume, listener=listener, progress=progress)
        result = combine_seeds(list(recipes), recipe.training.runtime.device)
    on_main(lambda: write_text(folder / METRICS, json_text(asdict(result), indent=1)))
    return result


def with_seed(recipe: Any, seed: int) -> Recipe:
    """Return a recipe with another seed."""
    changed: Recipe = replace(recipe, seed=seed)
    return changed


def combine_seeds(folders: Sequence[Path], device: Device) -> SeedMetrics:
    """Evaluate the runs of a recipe on the dev split, one at a time, and combine their metrics."""
    seeds, evaluations, examples = [], [], []
    for folder in folders:
        run = load(folder, device)
        seeds.append(run.recipe.seed)
        evaluations.append(run.evaluate())
        examples.append(run.splits["dev"])
    same_examples = all(split == examples[0] for split in examples[1:])
    return SeedMetrics(
        task=run.recipe.task,
        n=evaluations[0].n,
        seeds=tuple(seeds),
        same_examples=same_examples,
        metrics=mean_estimates([item.samples for item in evaluations], same_examples),
    )
