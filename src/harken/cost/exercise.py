"""A training step of a recipe without data: model, random batch, loss and optimizers.

Each task knows its own sizes and batches (`Task.probe`). Sizes that a recipe does not state, such
as the size of the vocabulary or the length of a sentence, have defaults; `Workload.assumed` lists
those in use. Rows have no padding. No file is read.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from harken.encode.subwords import CharactersConfig
from harken.encode.vocabulary import VocabularySizes
from harken.errors import UserError
from harken.recipe import Recipe, task_of
from harken.training.loop import MicroBatch, StageConfig

CHARACTERS = 360  # 256 bytes, 4 special symbols and about a hundred characters
WORDS = 20_000  # distinct words if the recipe sets no limit
CPU = torch.device("cpu")
TAGS = 17  # of Universal Dependencies


@dataclass(frozen=True, kw_only=True, slots=True)
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
        """The model in training mode."""
        model: nn.Module = task_of(self.recipe).build(self.recipe, self.vocabulary_sizes)
        return model.train()

    def batch(self) -> MicroBatch[Any]:
        """A random batch with its loss."""
        return task_of(self.recipe).probe(self.recipe, self.vocabulary_sizes, self.sizes)

    def loss(self) -> Callable[[nn.Module], Tensor]:
        """The loss of a model on a random batch."""
        batch = self.batch()
        return lambda model: batch.loss(model, CPU)


def workload(
    recipe: Recipe,
    *,
    length: int | None = None,
    batch: int | None = None,
    vocabulary: int | None = None,
) -> Workload:
    """A step of a recipe; sizes that are not given come from the recipe or from the defaults."""
    assumed: list[str] = []
    if vocabulary is None:
        vocabulary, is_stated = default_vocabulary(recipe)
        assumed += [] if is_stated else [f"a vocabulary of {vocabulary:,} (--vocabulary)"]
    probe = task_of(recipe).probe_sizes(recipe, batch, length)
    result = Workload(
        recipe=recipe,
        stage=probe.stage,
        vocabulary=vocabulary,
        sizes=probe.letters,
        assumed=(*assumed, *probe.assumed),
    )
    check_length(result, probe.letters.get("S", probe.letters["T"]))
    return result


def check_length(step: Workload, length: int) -> None:
    """Reject rows that are longer than the model's inputs."""
    with torch.device("meta"):
        model = step.build()
    names = ("max_frames", "max_source", "max_target", "length")
    limits = [limit for name in names if (limit := getattr(model, name, None)) is not None]
    if limits and length > limits[0]:
        raise UserError(
            f"length {length}: the model takes at most {limits[0]}",
            fix=f"override the model's length, for example model.length={length}",
        )


def default_vocabulary(recipe: Recipe) -> tuple[int, bool]:
    """Entries of the vocabulary, and whether the recipe states them."""
    encode: Any = recipe.encode
    units = getattr(encode, "units", encode)
    if isinstance(units, CharactersConfig):
        return CHARACTERS, False
    size = getattr(units, "size", None)
    return (WORDS, False) if size is None else (int(size), True)


WIDTHS = {"width", "hidden", "letter", "inner", "head_width", "key_width"}


def model_letters(recipe: Recipe) -> dict[str, int]:
    """J, the model's width, and L (and D), the layers of its first (and second) stack."""
    width = next(value for path, value in settings(recipe.model) if path[-1] == "width")
    return {"J": width, **{letter: value for letter, (_, value) in stacks(recipe).items()}}


def stacks(recipe: Recipe) -> dict[str, tuple["Path", int]]:
    """Where the model's config states the layers L and D, and how many there are."""
    layers = [(path, value) for path, value in settings(recipe.model) if path[-1] == "layers"]
    return dict(zip("LD", [(path, value) for path, value in layers if value > 0], strict=False))


def resized(step: Workload, sizes: Mapping[str, int]) -> Workload:
    """The same step with other sizes; all widths of the model grow in proportion to J."""
    width, found = model_letters(step.recipe)["J"], stacks(step.recipe).items()
    changes = {path: sizes[letter] for letter, (path, _) in found if letter in sizes}
    for path, value in settings(step.recipe.model):
        if path[-1] in WIDTHS and "J" in sizes:
            changes[path] = value * sizes["J"] // width
    recipe: Any = replace(step.recipe, model=changed(step.recipe.model, changes))
    inputs = {letter: sizes.get(letter, value) for letter, value in step.sizes.items()}
    return replace(step, recipe=recipe, vocabulary=sizes.get("V", step.vocabulary), sizes=inputs)


Path = tuple[str, ...]


def settings(config: Any, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """All whole numbers of a config with their paths."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from settings(value, (*path, field.name))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*path, field.name), value


def changed(config: Any, changes: Mapping[Path, int]) -> Any:
    """A config with some numbers replaced."""
    values: dict[str, Any] = {path[0]: value for path, value in changes.items() if len(path) == 1}
    for name in {path[0] for path in changes if len(path) > 1}:
        inner = {
            path[1:]: value for path, value in changes.items() if path[0] == name and len(path) > 1
        }
        values[name] = changed(getattr(config, name), inner)
    return replace(config, **values)
