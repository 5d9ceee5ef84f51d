"""A run folder: what training left behind, loaded again to predict and measure.

recipe.toml         effective, the one truth        tokenizer.json   the vocabulary
model.safetensors   weights                         manifest.json    SHA-256 of these three
metrics.json        figures on the dev split        log.jsonl        one JSON object a line
README.md           model card                      report.html      the page for people
checkpoints/        to resume from                  tokens/          encoded texts
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from harken.encode.vocabulary import Vocabulary
from harken.errors import UserError
from harken.recipe import Recipe, load_recipe, task_of
from harken.tasks.task import Evaluation, Glimpse, Prediction, Task
from harken.training.checkpoint import check_manifest, load_weights, set_weights
from harken.training.machine import Device, choose_device, prepare

RECIPE, TOKENIZER, MODEL = "recipe.toml", "tokenizer.json", "model.safetensors"
METRICS, LOG, CARD, REPORT = "metrics.json", "log.jsonl", "README.md", "report.html"
CHECKPOINTS, TOKENS = "checkpoints", "tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A trained model with all that it needs."""

    folder: Path
    recipe: Recipe
    task: Task
    vocabulary: Vocabulary
    model: nn.Module

    def predict(self, inputs: Sequence[str]) -> list[Prediction]:
        """One prediction for each input, in order."""
        return list(self.task.predict(self.model, self.vocabulary, inputs))

    def splits(self) -> Mapping[str, Any]:
        """The examples that the recipe names."""
        return self.task.read(self.recipe)

    def evaluate(self, split: str = "dev", data: Path | None = None) -> Evaluation:
        """Figures on a split of the recipe, or on another file of the same form."""
        splits = self.splits()
        if data is not None:
            examples = self.task.read_file(self.recipe, data)
        elif split in splits:
            examples = splits[split]
        else:
            raise UserError(
                f"{self.folder / RECIPE}: found no data.{split}, wanted one to evaluate on",
                fix=f"use --split {' or '.join(sorted(splits.keys() - {'train'}))}, or --data FILE",
            )
        return self.task.evaluate(self.model, self.vocabulary, splits, examples)

    def glimpse(self, prediction: Prediction) -> Glimpse:
        """An input and its output as the model meets them."""
        return self.task.glimpse(self.model, self.vocabulary, prediction)


def require_run(folder: Path) -> None:
    """Tell a folder that is no run from one that has not finished."""
    if not folder.is_dir():
        raise UserError(
            f"{folder}: found no such folder, wanted a run folder",
            fix="train one with `harken train RECIPE.toml --run DIR`",
        )
    if not (folder / RECIPE).is_file():
        raise UserError(
            f"{folder}: found no {RECIPE} in it, wanted a run folder",
            fix="name the folder that `harken train` wrote",
        )
    if not (folder / MODEL).is_file():
        raise UserError(
            f"{folder}: found a run that has not finished, wanted a trained one",
            fix=f"finish it with `harken train {folder / RECIPE} --resume`",
        )


def load(folder: str | Path, device: Device = "auto") -> Run:
    """A finished run, its files checked against the manifest."""
    folder = Path(folder)
    require_run(folder)
    check_manifest(folder, (RECIPE, TOKENIZER, MODEL))
    chosen = choose_device(device)
    prepare(chosen)
    recipe = load_recipe(folder / RECIPE)
    task = task_of(recipe)
    vocabulary = Vocabulary.load(folder / TOKENIZER)
    model = task.build(recipe, vocabulary)
    set_weights(model, load_weights(folder / MODEL), folder / MODEL)
    return Run(
        folder=folder,
        recipe=recipe,
        task=task,
        vocabulary=vocabulary,
        model=model.to(chosen).eval(),
    )
