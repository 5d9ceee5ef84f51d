"""A training step of a recipe on random batches (`Task.dummy_batch`), and its cost as formulas.

Sizes that a recipe does not state, such as the vocabulary size, have defaults, which
`Workload.assumed` lists. Rows have no padding. No file is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from harken.cost.formula import LOGARITHMS, POWERS, Axis, Factor, Formula, fit_formulas
from harken.cost.step import CPU, Cost, trace_forward, trace_step
from harken.cost.trace import Observer
from harken.encode.subwords import CharactersConfig
from harken.encode.vocabulary import VocabularySizes
from harken.errors import UserError
from harken.layers.depth import freeze_layers
from harken.recipe import Recipe, frozen_layers, task_of
from harken.training.loop import MicroBatch, StageConfig

CHARACTERS = 360  # 256 bytes, 4 special symbols and about a hundred characters
WORDS = 20_000  # distinct words if the recipe sets no limit
TAGS = 17  # of Universal Dependencies
LIMITS = ("max_frames", "max_source", "max_target", "max_length")  # attributes of models
# Keys of a model config that are scaled with J.
WIDTHS = {"width", "hidden", "embedding_width", "inner", "head_width", "key_width"}
# Fields of `Cost` that have formulas in `count_formulas`.
COUNTS = ("parameters", "forward", "step", "traffic", "state_bytes", "saved_bytes", "peak")
# Sizes of each letter at which steps are traced to fit a formula. The last size is used only to
# check the formula. For J and V, these are multiples of the recipe's sizes. L and D are numbers of
# layers (D of the decoder). Counts start at L = 2: a single recurrent layer copies no state.
COUNT_NODES = {"B": (2, 3, 5), "T": (4, 8, 12, 16), "M": (5, 10, 15, 20), "S": (256, 320, 384, 512)}
COUNT_NODES |= {"J": (1, 2, 3, 4), "V": (1, 2, 3), "L": (2, 3, 4), "D": (2, 3, 4)}
DEPTH_NODES = {"B": (2, 4, 8), "T": (2, 4, 8, 16), "M": (4, 8, 16, 32), "S": (256, 512, 1024, 2048)}
DEPTH_NODES |= {"J": (1, 2, 4, 8), "V": (1, 2, 4), "L": (1, 2, 3), "D": (1, 2, 3)}


@dataclass(frozen=True, slots=True)
class Workload:
    """One training step of a recipe at given sizes (letters as in `DummySizes`)."""

    recipe: Recipe
    stage: StageConfig  # the stage in which a run spends most of its time
    vocabulary: int
    sizes: Mapping[str, int]
    assumed: tuple[str, ...] = ()  # defaults in use, as text

    @property
    def vocabulary_sizes(self) -> VocabularySizes:
        return VocabularySizes(self.vocabulary, CHARACTERS, TAGS)

    def build(self) -> nn.Module:
        """Build the model in training mode, with the frozen layers of the recipe."""
        model: nn.Module = task_of(self.recipe).build(self.recipe, self.vocabulary_sizes)
        freeze_layers(model, frozen_layers(self.recipe))
        return model.train()

    def batch(self) -> MicroBatch[Any]:
        """Return a random batch with its loss."""
        return task_of(self.recipe).dummy_batch(self.recipe, self.vocabulary_sizes, self.sizes)

    def loss(self) -> Callable[[nn.Module], Tensor]:
        """Return a function from the model to its loss on a random batch."""
        batch = self.batch()
        return lambda model: batch.loss(model, CPU)

    def optimizers(self, model: nn.Module) -> Sequence[Optimizer]:
        """Build the optimizers, after clipping the gradients, so that a trace includes clipping."""
        nn.utils.clip_grad_norm_(model.parameters(), self.stage.max_grad_norm)
        return self.stage.optimizer.build(model)

    @property
    def letters(self) -> dict[str, int]:
        """The letters of the formulas with their sizes in this step."""
        inputs = {letter: size for letter, size in self.sizes.items() if letter in COUNT_NODES}
        settings = model_settings(self.recipe).items()
        return {**inputs, **{letter: size for letter, (_, size) in settings}, "V": self.vocabulary}

    def resized(self, sizes: Mapping[str, int]) -> "Workload":
        """Return the same step with other sizes; all widths of the model are scaled with J."""
        recipe: Any = self.recipe
        settings, model = model_settings(recipe), recipe.model
        changes = {path: sizes[letter] for letter, (path, _) in settings.items() if letter in sizes}
        for path, value in integers(model):
            if path[-1] in WIDTHS and "J" in sizes:
                changes[path] = value * sizes["J"] // settings["J"][1]
        recipe = replace(recipe, model=with_integers(model, changes))
        inputs = {letter: sizes.get(letter, size) for letter, size in self.sizes.items()}
        vocabulary = sizes.get("V", self.vocabulary)
        return replace(self, recipe=recipe, vocabulary=vocabulary, sizes=inputs)


def workload(
    recipe: Recipe,
    *,
    length: int | None = None,
    batch: int | None = None,
    vocabulary: int | None = None,
) -> Workload:
    """Return a step of a recipe; sizes that are None come from the recipe or from defaults."""
    dummy = task_of(recipe).dummy_sizes(recipe, batch, length)
    assumed = tuple(dummy.assumed)
    if vocabulary is None:
        vocabulary, is_stated = default_vocabulary(recipe)
        if not is_stated:
            assumed = (f"a vocabulary of {vocabulary:,} (--vocabulary)", *assumed)
    step = Workload(recipe, dummy.stage, vocabulary, dummy.sizes, assumed)
    tokens = dummy.sizes.get("S") or dummy.sizes.get("T", 1)
    with torch.device("meta"):
        model = step.build()
    limits = [limit for name in LIMITS if (limit := getattr(model, name, None)) is not None]
    if limits and tokens > limits[0]:
        raise UserError(
            f"length: expected at most {limits[0]} for this model, got {tokens}",
            fix="choose a shorter length, or raise max_length of the model, encoder or decoder",
        )
    return step


def default_vocabulary(recipe: Recipe) -> tuple[int, bool]:
    """Return the vocabulary size, and whether the recipe states it."""
    tokenizer: Any = getattr(recipe.encode, "tokenizer", recipe.encode)
    if isinstance(tokenizer, CharactersConfig):
        return CHARACTERS, False
    size = getattr(tokenizer, "vocab_size", None)
    return (WORDS, False) if size is None else (int(size), True)


def trace_workload(step: Workload, observers: Sequence[Observer] = ()) -> Cost:
    """Trace one training step of a recipe, clipping and optimizers included."""
    return trace_step(lambda _: step.build(), step.loss(), step.optimizers, observers)


def count_formulas(step: Workload) -> dict[str, Formula | None]:
    """Return formulas for operations and bytes; None for a count that is not a polynomial."""
    optimizer_costs: dict[tuple[int, ...], Cost] = {}  # by the sizes of the model

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        traced = step.resized(sizes)
        key = tuple(sizes.get(letter, 0) for letter in "JLDV")
        if key not in optimizer_costs:
            optimizer_costs[key] = trace_step(
                lambda _: traced.build(), lambda _: torch.zeros(()), traced.optimizers, exact=False
            )
        cost = asdict(trace_step(lambda _: traced.build(), traced.loss(), exact=False))
        cost["traffic"] += optimizer_costs[key].traffic
        cost["state_bytes"] = optimizer_costs[key].state_bytes
        return {name: cost[name] for name in COUNTS}

    leading = ("parameters", "step", "saved_bytes")
    return fit_formulas(count, list(axes(step, COUNT_NODES, POWERS)), leading)


def depth_formulas(step: Workload) -> dict[str, Formula | None]:
    """Return formulas for the depth, which are exact at the sizes of `DEPTH_NODES`."""

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        traced = step.resized(sizes)
        cost = trace_forward(lambda _: traced.build(), traced.loss())
        return {"depth": cost.depth, "serial": cost.serial}

    return fit_formulas(count, [*axes(step, DEPTH_NODES, LOGARITHMS)], ("depth", "serial"))


def axes(
    step: Workload, nodes: Mapping[str, Sequence[int]], factors: Sequence[Factor]
) -> Iterator[Axis]:
    """Yield one axis per letter. L and D, numbers of layers, occur as powers only.

    Numbers of layers are above that of the frozen layers, which is constant.
    """
    frozen = frozen_layers(step.recipe)
    for letter, size in step.letters.items():
        unit, offset = size if letter in "JV" else 1, frozen if letter in "LD" else 0
        sizes = [unit * node + offset for node in nodes[letter]]
        yield Axis(letter, sizes, POWERS if letter in "LD" else factors)


Path = tuple[str, ...]


def model_settings(recipe: Recipe) -> dict[str, tuple[Path, int]]:
    """Return the config path and the value of J (width), L and D (layers of the model's stacks)."""
    numbers = list(integers(recipe.model))
    width = next(number for number in numbers if number[0][-1] == "width")
    layers = [(path, value) for path, value in numbers if path[-1] == "layers" and value > 0]
    return {"J": width, **dict(zip("LD", layers, strict=False))}


def integers(config: Any, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Yield all integers of a config with their paths."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from integers(value, (*path, field.name))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*path, field.name), value


def with_integers(config: Any, changes: Mapping[Path, int]) -> Any:
    """Return a config with some integers replaced."""
    values: dict[str, Any] = {}
    for name in {path[0] for path in changes}:
        nested = {path[1:]: value for path, value in changes.items() if path[0] == name}
        values[name] = nested[()] if () in nested else with_integers(getattr(config, name), nested)
    return replace(config, **values)
