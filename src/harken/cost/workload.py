"""A training step of a recipe on random batches (`Task.probe`), and its cost as formulas.

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
from harken.recipe import Recipe, task_of
from harken.training.loop import MicroBatch, StageConfig

CHARACTERS = 360  # 256 bytes, 4 special symbols and about a hundred characters
WORDS = 20_000  # distinct words if the recipe sets no limit
TAGS = 17  # of Universal Dependencies
LIMITS = ("max_frames", "max_source", "max_target", "max_length")  # attributes of models
WIDTHS = {"width", "hidden", "embedding_width", "inner", "head_width", "key_width"}
COUNTS = ("parameters", "forward", "step", "traffic", "held", "kept", "peak")
# Sizes at which a letter is traced, the last one for the check; those of J and V are multiples of
# the recipe's. L starts at 2, because a single recurrent layer does not copy its state.
COUNT_NODES = {"B": (2, 3, 5), "T": (4, 8, 12, 16), "M": (5, 10, 15, 20), "S": (256, 320, 384, 512)}
COUNT_NODES |= {"J": (1, 2, 3, 4), "V": (1, 2, 3), "L": (2, 3, 4), "D": (2, 3, 4)}
DEPTH_NODES = {"B": (2, 4, 8), "T": (2, 4, 8, 16), "M": (4, 8, 16, 32), "S": (256, 512, 1024, 2048)}
DEPTH_NODES |= {"J": (1, 2, 4, 8), "V": (1, 2, 4), "L": (1, 2, 3), "D": (1, 2, 3)}


@dataclass(frozen=True, slots=True)
class Workload:
    """One training step of a recipe at given sizes (letters as in `ProbeSizes`)."""

    recipe: Recipe
    stage: StageConfig  # in which a run spends most of its time
    vocabulary: int
    sizes: Mapping[str, int]
    assumed: tuple[str, ...] = ()  # defaults in use, in words

    @property
    def vocabulary_sizes(self) -> VocabularySizes:
        return VocabularySizes(self.vocabulary, CHARACTERS, TAGS)

    def build(self) -> nn.Module:
        """Build the model in training mode."""
        model: nn.Module = task_of(self.recipe).build(self.recipe, self.vocabulary_sizes)
        return model.train()

    def batch(self) -> MicroBatch[Any]:
        """Return a random batch with its loss."""
        return task_of(self.recipe).probe(self.recipe, self.vocabulary_sizes, self.sizes)

    def loss(self) -> Callable[[nn.Module], Tensor]:
        """Return a function from the model to its loss on a random batch."""
        batch = self.batch()
        return lambda model: batch.loss(model, CPU)

    def optimizers(self, model: nn.Module) -> Sequence[Optimizer]:
        """Clip the gradients of a model and build its optimizers."""
        nn.utils.clip_grad_norm_(model.parameters(), self.stage.max_grad_norm)
        return self.stage.optimizer.build(model)

    @property
    def letters(self) -> dict[str, int]:
        """The letters of the formulas with their sizes in this step."""
        inputs = {letter: size for letter, size in self.sizes.items() if letter in COUNT_NODES}
        settings = model_settings(self.recipe).items()
        return {**inputs, **{letter: size for letter, (_, size) in settings}, "V": self.vocabulary}

    def resized(self, sizes: Mapping[str, int]) -> "Workload":
        """Return the same step with other sizes; all widths of the model are proportional to J."""
        settings, model = model_settings(self.recipe), self.recipe.model
        changes = {path: sizes[letter] for letter, (path, _) in settings.items() if letter in sizes}
        for path, value in integers(model):
            if path[-1] in WIDTHS and "J" in sizes:
                changes[path] = value * sizes["J"] // settings["J"][1]
        recipe: Any = replace(self.recipe, model=with_integers(model, changes))
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
    probe = task_of(recipe).probe_sizes(recipe, batch, length)
    assumed = tuple(probe.assumed)
    if vocabulary is None:
        vocabulary, is_stated = default_vocabulary(recipe)
        if not is_stated:
            assumed = (f"a vocabulary of {vocabulary:,} (--vocabulary)", *assumed)
    step = Workload(recipe, probe.stage, vocabulary, probe.letters, assumed)
    tokens = probe.letters.get("S", probe.letters["T"])
    with torch.device("meta"):
        model = step.build()
    limits = [limit for name in LIMITS if (limit := getattr(model, name, None)) is not None]
    if limits and tokens > limits[0]:
        raise UserError(
            f"length {tokens}: the model takes at most {limits[0]}",
            fix=f"override the model's length, for example model.max_length={tokens}",
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
    """Fit operations and bytes; None for a count that is not a polynomial of the sizes."""
    updates: dict[tuple[int, ...], Cost] = {}  # of the optimizers alone, by the model's sizes

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        other = step.resized(sizes)
        key = tuple(sizes.get(letter, 0) for letter in "JLDV")
        if key not in updates:
            updates[key] = trace_step(
                lambda _: other.build(), lambda _: torch.zeros(()), other.optimizers, exact=False
            )
        cost = asdict(trace_step(lambda _: other.build(), other.loss(), exact=False))
        cost["traffic"] += updates[key].traffic
        cost["held"] = updates[key].held
        return {name: cost[name] for name in COUNTS}

    return fit_formulas(count, [*axes(step, COUNT_NODES, POWERS)], ("parameters", "step", "kept"))


def depth_formulas(step: Workload) -> dict[str, Formula | None]:
    """Fit the depth; exact where every size is the recipe's or a power of two."""

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        other = step.resized(sizes)
        cost = trace_forward(lambda _: other.build(), other.loss())
        return {"depth": cost.depth, "serial": cost.serial}

    return fit_formulas(count, [*axes(step, DEPTH_NODES, LOGARITHMS)], ("depth", "serial"))


def axes(
    step: Workload, nodes: Mapping[str, Sequence[int]], factors: Sequence[Factor]
) -> Iterator[Axis]:
    """Yield one axis per letter; numbers of layers are never in a logarithm."""
    for letter, size in step.letters.items():
        unit = size if letter in "JV" else 1
        sizes = [unit * node for node in nodes[letter]]
        yield Axis(letter, sizes, POWERS if letter in "LD" else factors)


Path = tuple[str, ...]


def model_settings(recipe: Recipe) -> dict[str, tuple[Path, int]]:
    """Return path and value of J, the model's width, and of L (and D), the layers of its stacks."""
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
        inner = {path[1:]: value for path, value in changes.items() if path[0] == name}
        values[name] = inner[()] if () in inner else with_integers(getattr(config, name), inner)
    return replace(config, **values)
