"""Cost of a recipe's training step, as numbers and as formulas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import torch
from torch import nn
from torch.optim import Optimizer

from harken.cost.exercise import Workload, model_letters, resized
from harken.cost.formula import LOGARITHMS, POWERS, Axis, Factor, Formula, fit
from harken.cost.step import Cost, trace_forward, trace_step
from harken.cost.trace import Observer

COUNTS = ("parameters", "forward", "step", "traffic", "held", "kept", "peak")
DEPTHS = ("depth", "serial")
# Sizes at which a letter is traced, the last one for the check; J and V: multiples of the recipe's.
# One layer would be special: the state of a single recurrent layer needs no copy.
COUNT_NODES = {"B": (2, 3, 5), "T": (4, 8, 12, 16), "M": (5, 10, 15, 20), "S": (256, 320, 384, 512)}
COUNT_NODES |= {"J": (1, 2, 3, 4), "V": (1, 2, 3), "L": (2, 3, 4), "D": (2, 3, 4)}
DEPTH_NODES = {"B": (2, 4, 8), "T": (2, 4, 8, 16), "M": (4, 8, 16, 32), "S": (256, 512, 1024, 2048)}
DEPTH_NODES |= {"J": (1, 2, 4, 8), "V": (1, 2, 4), "L": (1, 2, 3), "D": (1, 2, 3)}


def trace_workload(step: Workload, observers: Sequence[Observer] = ()) -> Cost:
    """Trace one training step of a recipe, clipping and optimizers included."""
    return trace_step(lambda _: step.build(), step.loss(), update(step), observers)


def update(step: Workload) -> Callable[[nn.Module], Sequence[Optimizer]]:
    """Clip the gradients of a model and build its optimizers."""

    def prepare(model: nn.Module) -> Sequence[Optimizer]:
        nn.utils.clip_grad_norm_(model.parameters(), step.stage.clip)
        return step.stage.optimiser.build(model)

    return prepare


def letters(step: Workload) -> dict[str, int]:
    """All letters of the formulas with their sizes in this step."""
    inputs = {letter: size for letter, size in step.sizes.items() if letter in COUNT_NODES}
    return {**inputs, **model_letters(step.recipe), "V": step.vocabulary}


def count_formulas(step: Workload) -> dict[str, Formula | None]:
    """Formulas of operations and bytes; None for a count that is no polynomial of the sizes."""

    updates: dict[tuple[int, ...], Cost] = {}  # of the optimizers, by the sizes of the model

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        other = resized(step, sizes)
        key = tuple(sizes.get(letter, 0) for letter in "JLDV")
        if key not in updates:
            updates[key] = trace_step(
                lambda _: other.build(), lambda _: torch.zeros(()), update(other), exact=False
            )
        cost = asdict(trace_step(lambda _: other.build(), other.loss(), exact=False))
        cost["traffic"] += updates[key].traffic
        cost["held"] = updates[key].held
        return {name: cost[name] for name in COUNTS}

    return fit(count, axes(step, COUNT_NODES), ("parameters", "step", "kept"))


def depth_formulas(step: Workload) -> dict[str, Formula | None]:
    """Formulas of the depth; exact where every size is the recipe's or a power of two."""

    def count(sizes: Mapping[str, int]) -> Mapping[str, int]:
        other = resized(step, sizes)
        cost = trace_forward(lambda _: other.build(), other.loss())
        return {"depth": cost.depth, "serial": cost.serial}

    return fit(count, axes(step, DEPTH_NODES, LOGARITHMS), DEPTHS)


def axes(
    step: Workload, nodes: Mapping[str, Sequence[int]], factors: Sequence[Factor] = POWERS
) -> list[Axis]:
    """One axis per letter."""
    found = []
    for letter, size in letters(step).items():
        unit = size if letter in "JV" else 1
        sizes = [unit * node for node in nodes[letter]]
        found.append(Axis(letter, sizes, POWERS if letter in "LD" else factors))
    return found
