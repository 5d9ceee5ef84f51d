"""The time of a training step from counts and a measured machine, and the time as it is.

    predicted = sum over operations of  times x seconds(kind, size) (1 + gradients) / 3
              + optimiser + clipping

A table holds an operation with two gradients; one with fewer takes its share. What is measured is a
step as `training/loop.py` does it, on a batch that means nothing (`exercise.py`).
"""

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from harken.cost.exercise import loss_of, made_batch
from harken.cost.machine import Machine, interpolated
from harken.cost.memory import footprint
from harken.cost.subject import Subject, stage_of
from harken.cost.tape import FLOAT, Kind, Tape
from harken.cost.walk import follow, orthogonalising

PRODUCT_KINDS: frozenset[Kind] = frozenset(
    {"linear", "product", "attention", "convolution", "tanh", "gru", "lstm", "cell"}
)
STEPS, WARMING = 5, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """On this machine, as loaded as it is."""

    seconds: float  # the median of some steps
    kept: int  # bytes held when the forward pass is done, weights left out
    peak: int  # the most that was held at any time, weights and their gradients left out


def predicted_seconds(subject: Subject, machine: Machine) -> float:
    """Of one training step."""
    tape, sizes = Tape(), subject.sizes
    follow(tape, subject.model, subject.recipe)
    total = sum(operations_seconds(tape, sizes, machine).values())
    weights = sum(one.numel() for one in subject.model.parameters())
    products = orthogonalising(subject.model, stage_of(subject.recipe).optimiser)
    tensors = len(list(subject.model.parameters()))
    total += interpolated(machine.adamw, float(weights)) + machine.adamw[0].seconds * tensors / 8
    total += sum(interpolated(machine.muon, float(one)) for one in products)
    return total + machine.seconds("move", 2.0 * weights * FLOAT) / 2  # clipping reads and writes


def operations_seconds(tape: Tape, sizes: Mapping[str, int], machine: Machine) -> dict[Kind, float]:
    """Forward and backward pass, by kind."""
    seconds: dict[Kind, float] = {}
    for one in tape.operations:
        size = one.products if one.kind in PRODUCT_KINDS else one.moved
        shortest = min((float(side.value(sizes)) for side in one.sides), default=math.inf)
        once = machine.seconds(one.kind, float(size.value(sizes)), shortest)
        share = (1 + one.gradients) / 3 if one.kind in PRODUCT_KINDS else (1 + one.gradients) / 2
        spent = once * share * float(one.times.value(sizes))
        seconds[one.kind] = seconds.get(one.kind, 0.0) + spent
    return seconds


def measured(subject: Subject, steps: int = STEPS) -> Measured:
    """Run the step some times over."""
    model = subject.built().train()
    batch, loss, stage = made_batch(subject), loss_of(subject), stage_of(subject.recipe)
    loss(model, batch).backward()  # type: ignore[no-untyped-call]
    seen = footprint(lambda: loss(model, batch))  # its gradients are there, and stay
    optimisers = stage.optimiser.build(model)
    spent = []
    for _ in range(WARMING + steps):
        started = time.perf_counter()
        (loss(model, batch) / max(batch.counted, 1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), stage.clip)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        spent.append(time.perf_counter() - started)
    return Measured(seconds=statistics.median(spent[WARMING:]), kept=seen.kept, peak=seen.peak)
