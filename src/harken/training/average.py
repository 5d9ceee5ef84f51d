"""Averages of the weights during a stage, which are evaluated and kept instead of the last weights.

    ema            a_1 = w_1 and a_s = d_s a_(s-1) + (1 - d_s) w_s after step s, with the warm-up
                   d_s = min(decay, s / (s + 9)) of TensorFlow
    checkpoints    the mean of the weights at the last n evaluations

Training continues from the raw weights. Running statistics of batch normalization are averaged like
weights. An average is a function of the weights alone, so it is equal on all processes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from harken.config import bounded
from harken.training.checkpoint import Weights, load_model_state, model_state

WARMUP = 9  # the decay is 0.5 after step 9 and 0.99 after step 891
MAX_KEPT = 100


class WeightAverage:
    """Base class of averages. `kept` has the sets of weights whose mean is the average."""

    def after_step(self, kept: Sequence[Weights], weights: Weights, step: int) -> Sequence[Weights]:
        """Return the new `kept` after a step; the first step is 1."""
        return kept

    def at_evaluation(self, kept: Sequence[Weights], weights: Weights) -> Sequence[Weights]:
        """Return the new `kept` at an evaluation."""
        return kept


@dataclass(frozen=True, kw_only=True, slots=True)
class NoAverageConfig(WeightAverage):
    """The weights themselves."""

    kind: Literal["none"] = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class EMAConfig(WeightAverage):
    """Exponential moving average of the weights, updated after every step."""

    kind: Literal["ema"] = "ema"
    # weight of the previous average in each update, smaller in the first steps; 0.999 averages
    # about the last 1,000 steps
    decay: float = bounded(0.999, at_least=0.0, below=1.0)

    def after_step(self, kept: Sequence[Weights], weights: Weights, step: int) -> Sequence[Weights]:
        if not kept:
            return [copy_weights(weights)]
        (average,) = kept
        blend_(average, weights, 1 - min(self.decay, step / (step + WARMUP)))
        return [average]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointAverageConfig(WeightAverage):
    """Mean of the weights at the last evaluations."""

    kind: Literal["checkpoints"] = "checkpoints"
    # number of evaluations, each of which takes the memory of the weights
    last: int = bounded(5, at_least=1, at_most=MAX_KEPT)

    def at_evaluation(self, kept: Sequence[Weights], weights: Weights) -> Sequence[Weights]:
        return [*kept, copy_weights(weights)][-self.last :]


AverageConfig = NoAverageConfig | EMAConfig | CheckpointAverageConfig


def copy_weights(weights: Mapping[str, Tensor]) -> Weights:
    """Return copies of tensors."""
    return {name: tensor.clone() for name, tensor in weights.items()}


@torch.no_grad()
def blend_(average: Weights, weights: Mapping[str, Tensor], share: float) -> None:
    """Replace `average` by (1 - share) average + share weights; integers are those of `weights`."""
    for name, tensor in average.items():
        if tensor.is_floating_point():
            tensor.lerp_(weights[name], share)
        else:
            tensor.copy_(weights[name])


def mean_weights(kept: Sequence[Weights]) -> Weights:
    """Return the mean of one or more sets of weights."""
    mean = copy_weights(kept[0])
    for count, weights in enumerate(kept[1:], start=2):
        blend_(mean, weights, 1 / count)
    return mean


@contextmanager
def replaced_weights(model: nn.Module, kept: Sequence[Weights], where: Path) -> Iterator[None]:
    """Give the model the mean of `kept`, if there are any, inside this block."""
    if not kept:
        yield
        return
    raw = copy_weights(model_state(model))
    load_model_state(model, mean_weights(kept), where)
    try:
        yield
    finally:
        load_model_state(model, raw, where)
