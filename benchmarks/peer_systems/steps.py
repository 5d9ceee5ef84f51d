"""Training steps of Harken, and of any other model with the same optimizer."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harken.recipe import AnyTask, Recipe, load_recipe, task_of
from harken.training.loop import MicroBatch, Stage, StepDone, Training

RECIPES = Path(__file__).parents[2] / "recipes"
NO_END = 10**6  # steps
LR, BETAS, WEIGHT_DECAY, MAX_NORM = 1e-3, (0.9, 0.95), 0.1, 1.0


def adamw(table: str) -> list[str]:
    """Return the settings for AdamW, without evaluation and checkpoints, in a training table."""
    optimizer = f'{{ kind = "adamw", lr = {LR}, weight_decay = {WEIGHT_DECAY} }}'
    return [
        f"{table}.optimizer={optimizer}",
        f"{table}.max_grad_norm={MAX_NORM}",
        f"{table}.steps={NO_END}",
        f"{table}.save_every={NO_END}",
        f"{table}.evaluate_every=0",
    ]


def read_recipe(task: str, settings: Sequence[str]) -> tuple[Recipe, AnyTask]:
    recipe = load_recipe(RECIPES / f"{task}.toml", settings)
    return recipe, task_of(recipe)


def harken_step(recipe: Any, model: nn.Module, stage: Stage[Any]) -> Callable[[], StepDone]:
    """Return a function that runs the next step of Harken's training loop."""
    training = Training(
        model,
        [stage],
        seed=0,
        runtime=recipe.training.runtime,
        device=torch.device("cpu"),
        checkpoints=Path(tempfile.gettempdir()) / "never-written",
    )
    events = iter(training)

    def step() -> StepDone:
        event = next(events)
        assert isinstance(event, StepDone)
        return event

    return step


def repeat_batch(config: Any, batch: MicroBatch[Any]) -> Stage[Any]:
    """Return a stage that trains on the same batch in every step."""
    return Stage(name="repeated", config=config, batch=lambda step: [batch])


def plain_step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], float]:
    """Return a function that runs a training step as most PyTorch programs do."""
    model.train()
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, fused=True)

    def step() -> float:
        loss().backward()
        nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return 1.0

    return step
