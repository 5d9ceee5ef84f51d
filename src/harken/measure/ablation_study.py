"""Remove each part of a model in turn, and compare a metric with and without it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import nn

from harken.errors import UserError
from harken.inspection.ablation import (
    How,
    Mean,
    MeanActivations,
    Part,
    Resample,
    Zero,
    layer_parts,
    mean_activations,
    position_parts,
)
from harken.measure.interval import LOWER_IS_BETTER, Estimate, Sample
from harken.measure.paired import Difference, difference

PartKind = Literal["heads", "layers", "positions"]
Replacement = Literal["zero", "mean", "resample"]


class Evaluated(Protocol):
    """The result of an evaluation, with the metric that matters most first."""

    @property
    def n(self) -> int: ...
    @property
    def samples(self) -> Mapping[str, Sample]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AblatedPart:
    """The metric without a part, and its difference from the whole model."""

    part: Part
    value: Estimate
    difference: Difference

    @property
    def kind(self) -> str:
        """Return head, attention, feedforward, layer or position."""
        return type(self.part).__name__.removesuffix("Ref").lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationStudy:
    """The metric of the whole model, and of the model without each part, the worst loss first."""

    n: int
    metric: str
    whole: Estimate
    parts: Sequence[AblatedPart]


def ablation_study(
    model: nn.Module,
    evaluate: Callable[[], Evaluated],
    what: PartKind,
    how: Replacement = "zero",
    *,
    seed: int = 0,
    on_part: Callable[[int, int, str, AblatedPart], None] = lambda *progress: None,
) -> AblationStudy:
    """Evaluate the model whole and without each part; `on_part(number, total, metric, part)`."""
    means, before = mean_activations(model, evaluate)
    parts = _parts(model, means, what)
    metric, sample = next(iter(before.samples.items()))
    replacement: How = Zero() if how == "zero" else Mean(means) if how == "mean" else Resample(seed)
    ablated: list[AblatedPart] = []
    for number, part in enumerate(parts, start=1):
        with ablated(model, [part], replacement):
            after = evaluate().samples[metric]
        result = AblatedPart(
            part=part, value=after.estimate(), difference=difference(sample, after)
        )
        ablated.append(result)
        on_part(number, len(parts), metric, result)
    ablated.sort(key=_gain)
    return AblationStudy(n=before.n, metric=metric, whole=sample.estimate(), parts=ablated)


def _parts(model: nn.Module, means: MeanActivations, what: PartKind) -> Sequence[Part]:
    """Return the parts that ran: an example may not use every part of a model."""
    found: Sequence[Part]
    if what == "heads":
        found = means.heads()
    elif what == "layers":
        found = [part for part in layer_parts(model) if part.module in means.written]
    else:
        found = position_parts(model)
    if not found:
        raise UserError(
            f"{type(model).__name__}: no {what} to remove",
            fix="choose other parts (command line: --what), or a run whose model has attention",
        )
    return found


def _gain(ablated: AblatedPart) -> float:
    """Return how much better the metric is without the part."""
    change = ablated.difference
    return -change.value if change.unit in LOWER_IS_BETTER else change.value
