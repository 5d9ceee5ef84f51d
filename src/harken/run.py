"""Load a run folder to predict and evaluate."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harken.decode.search import SearchConfig
from harken.errors import UserError
from harken.measure.scored_answers import ScoredAnswers, exact_matches
from harken.notebook import NotebookOutput
from harken.recipe import AnyTask, Recipe, load_effective_recipe, task_of
from harken.run_folder import MODEL, RECIPE, TOKENIZER, require_run
from harken.tasks.attention_view import AttentionExample
from harken.tasks.prediction import Evaluation, Prediction
from harken.tasks.task import Indices, InputForm, Predictor, Splits, TaskVocabulary
from harken.training.checkpoint import check_digests, load_model_state, load_weights
from harken.training.memory import PREDICTING, SkipInitialization, check_model_size
from harken.training.runtime import Device, choose_device, configure_process

StringsOrPaths = str | PathLike[str] | Iterable[str | PathLike[str]]


@dataclass(frozen=True, slots=True, repr=False)
class Run(NotebookOutput):
    """A trained model with its recipe and vocabulary."""

    folder: Path
    recipe: Recipe
    task: AnyTask
    splits: Splits[Any]
    vocabulary: TaskVocabulary
    model: nn.Module

    def __repr__(self) -> str:
        parameters = sum(weight.numel() for weight in self.model.parameters())
        return (
            f"Run(task={self.recipe.task!r}, folder={str(self.folder)!r}, "
            f"parameters={parameters:,}, device={str(self.device)!r})"
        )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def predictor(self) -> Predictor[Any, Any, Any, Any]:
        return self.task.predictor_type(self.recipe, self.splits, self.vocabulary, self.model)

    @property
    def input_form(self) -> InputForm:
        """What the inputs of `predict` are: lines of text, or names of sounds or images."""
        return self.task.inputs(self.recipe)

    @property
    def search(self) -> SearchConfig | None:
        """The search settings of the recipe; None for a task that does not search."""
        search: SearchConfig | None = getattr(self.recipe, "search", None)
        return search

    def with_search(self, search: SearchConfig) -> "Run":
        """Return the same run with other search settings."""
        if self.search is None:
            raise UserError(
                f"task {self.recipe.task!r} does not search", fix="do not set search options"
            )
        changed: Any = self.recipe
        return replace(self, recipe=replace(changed, search=search))

    def predict(
        self,
        inputs: StringsOrPaths,
        nbest: int = 1,
        indices: Indices = None,
        *,
        times: bool = False,
    ) -> list[Prediction]:
        """Return one prediction per input, in order; a single string is one input.

        Inputs are texts, or names of sound or image files. A sampled output depends on the seed and
        the index of its input; `indices` are by default 0, 1, 2, … With `times`, a prediction has
        the start and end of each word in seconds (speech recognition only).
        """
        if nbest < 1:
            raise UserError(f"nbest: expected 1 or more, got {nbest}", fix="use at least 1")
        if times:
            self._require_speech("does not predict word times", "predict without times")
        return list(self.predictor.predict(self._inputs(inputs), nbest, indices, times=times))

    def evaluate(
        self, split: str = "dev", files: StringsOrPaths = (), condition: str | None = None
    ) -> Evaluation:
        """Compute the metrics on a split of the recipe, or on other files of the same format.

        A condition such as noise:10 changes the sounds or references (speech recognition only).
        """
        if condition is not None:
            self._require_speech("has no conditions", "evaluate without a condition")
        return self.predictor.evaluate(self.examples(split, files), condition)

    def attention(self, text: str, output: str | None = None) -> AttentionExample | None:
        """Return the attention of an input; with `output`, the model reads it (teacher forcing).

        None if the input has no tokens or the model has no attention.
        """
        example = self.predictor.attention(text, output)
        return None if example is None else replace(example, model=self.model)

    def inputs(self, count: int) -> list[str]:
        """Return the first `count` inputs of the dev split that are not empty."""
        return list(islice(filter(None, map(self.task.input, self.splits["dev"])), count))

    def scored_answers(self) -> ScoredAnswers | None:
        """Return the confidence and correctness of each output on the dev split.

        None if an input may have several correct outputs.
        """
        examples = [example for example in self.splits["dev"] if self.task.input(example)]
        targets = [target for target in map(self.task.target, examples) if target is not None]
        if len(targets) < len(examples):
            return None
        predictions = self.predict(list(map(self.task.input, examples)))
        outputs = [prediction.output for prediction in predictions]
        confidences = [prediction.confidence for prediction in predictions]
        return ScoredAnswers(confidences, exact_matches(outputs, targets))

    def examples(self, split: str, files: StringsOrPaths = ()) -> Sequence[Any]:
        """Read the examples of a split of the recipe, or of other files of the same format."""
        if paths := _checked_list("files", files, str | PathLike, "path"):
            return self.task.read(self.recipe, list(map(Path, paths)))
        if split not in self.splits:
            known = sorted(self.splits.keys() - {"train"})
            raise UserError(
                f"{self.folder / RECIPE}: there is no data.{split} to evaluate on",
                fix=f"choose {' or '.join(f'split={name!r}' for name in known)}, or other files "
                f"(command line: {' or '.join(f'--split {name}' for name in known)}, or --data)",
            )
        return self.splits[split]

    def _require_speech(self, problem: str, alternative: str) -> None:
        if not self.task.recognizes_speech:
            message = f"task {self.recipe.task!r} {problem}"
            raise UserError(message, fix=f"{alternative}, or use a run of task 'transcribe'")

    def _inputs(self, inputs: StringsOrPaths) -> list[str]:
        """Check the inputs of `predict`; file names may be path objects."""
        if self.input_form == "lines":
            return _checked_list("inputs", inputs, str, "string")
        return list(map(os.fspath, _checked_list("inputs", inputs, str | PathLike, "path")))


def _checked_list(name: str, values: Any, kind: Any, noun: str) -> list[Any]:
    """Return an argument that must be a list of strings or paths; a single one is a list of one."""
    if isinstance(values, str | PathLike):
        values = [values]
    elif not isinstance(values, Iterable) or isinstance(values, bytes):
        problem = f"{name}: expected a {noun} or a list of {noun}s, got {values!r}"
        raise UserError(problem, fix=f"pass a list, for example {name}=['…']")
    items = list(values)
    for number, item in enumerate(items):
        if not isinstance(item, kind):
            raise UserError(
                f"{name}[{number}]: expected a {noun}, got {str(item)[:60]!r} "
                f"({type(item).__name__})",
                fix=f"pass each item as a {noun}",
            )
    return items


def load(folder: str | PathLike[str], device: Device = "auto") -> Run:
    """Load a finished run after checking its files against the manifest.

    Arguments:
        folder: the run folder that training wrote.
        device: "auto", "cpu", "cuda" or "mps".

        run = harken.load("runs/demo")
        run.predict(["Where was Ada Lovelace born?"])
    """
    folder = Path(folder)
    require_run(folder)
    check_digests(folder, (RECIPE, TOKENIZER, MODEL))
    chosen = choose_device(device)
    configure_process(chosen)
    recipe = load_effective_recipe(folder / RECIPE)
    task = task_of(recipe)
    vocabulary = task.vocabulary_type.load(folder / TOKENIZER)
    build, where = partial(task.build, recipe, vocabulary.sizes), str(folder / RECIPE)
    check_model_size(build, where, bytes_per_parameter=PREDICTING, device=chosen)
    with SkipInitialization():
        model = build()
    load_model_state(model, load_weights(folder / MODEL), folder / MODEL)
    splits = task.read_splits(recipe)
    return Run(folder, recipe, task, splits, vocabulary, model.to(chosen).eval())
