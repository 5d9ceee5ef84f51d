"""Ablation studies: a metric of a model with and without each of its parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from harken.errors import UserError
from harken.inspection import ablation
from harken.inspection.ablation import ModelPart
from harken.measure.interval import LOWER_IS_BETTER, Estimate
from harken.measure.paired import Difference, difference
from harken.measure.run_comparison import EvaluationResult

PartKind = Literal["heads", "layers", "positions"]
MethodName = Literal["zero", "mean", "resample"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AblatedPart:
    """The metric without a part, and its difference from that of the whole model."""

    part: ModelPart
    value: Estimate
    difference: Difference

    @property
    def kind(self) -> str:
        """Return head, attention, feedforward, layer or position."""
        return type(self.part).__name__.removesuffix("Ref").lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationStudy:
    """The metric of the whole model and without each part, largest loss of quality first."""

    n: int  # number of examples
    metric: str  # name of the metric
    whole: Estimate
    parts: Sequence[AblatedPart]


def ablation_study(
    model: nn.Module,
    evaluate: Callable[[], EvaluationResult],
    kind: PartKind,
    method: MethodName = "zero",
    *,
    seed: int = 0,
    on_part: Callable[[int, int, str, AblatedPart], None] = lambda number, total, metric, part: (
        None
    ),
) -> AblationStudy:
    """Evaluate the model as a whole, then once without each part of the kind.

    `on_part` is called after each part with its number from 1, the number of parts, the name of the
    metric and the result.
    """
    means, baseline = ablation.mean_activations(model, evaluate)
    parts: Sequence[ModelPart] = ablation.position_parts(model)
    if kind == "heads":
        parts = means.heads()
    elif kind == "layers":  # those that ran: the examples may not use every part of the model
        parts = [part for part in ablation.layer_parts(model) if part.module in means.outputs]
    if not parts:
        raise UserError(
            f"the model has no {'positional encoding' if kind == 'positions' else kind} to remove",
            fix="choose other parts (command line: --parts), or a run whose model has attention",
        )
    metric, sample = next(iter(baseline.samples.items()))
    methods: dict[MethodName, ablation.AblationMethod] = {
        "zero": ablation.Zero(),
        "mean": ablation.Mean(means),
        "resample": ablation.Resample(seed),
    }
    results: list[AblatedPart] = []
    for number, part in enumerate(parts, start=1):
        with ablation.ablated(model, [part], methods[method]):
            ablated = evaluate().samples[metric]
        change = difference(sample, ablated)
        results.append(AblatedPart(part=part, value=ablated.estimate(), difference=change))
        on_part(number, len(parts), metric, results[-1])
    sign = -1 if results[0].difference.unit in LOWER_IS_BETTER else 1
    results.sort(key=lambda result: sign * result.difference.value)
    return AblationStudy(n=baseline.n, metric=metric, whole=sample.estimate(), parts=results)
