"""Training as a stream of events.

One step computes the gradients of `micro_batches` batches, sums them, clips the sum and updates the
weights. Under torchrun each process computes an equal share of the micro-batches. Everything random
in micro-batch m of step s of stage g is drawn from a seed made of (seed, g, s, m), so a resumed run
repeats the uninterrupted one exactly, with any number of processes.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from harken.config import MAX_STEPS, bounded
from harken.errors import Failure, UserError
from harken.layers.onednn import onednn_linears
from harken.training.average import (
    AverageConfig,
    NoAverageConfig,
    copy_weights,
    mean_weights,
    replaced_weights,
)
from harken.training.checkpoint import (
    Checkpoint,
    Progress,
    Weights,
    checkpoint_path,
    load_checkpoint,
    load_model_state,
    load_optimizer_state,
    model_state,
    optimizer_state,
    save_checkpoint,
    weights_like,
)
from harken.training.distributed import agree, gather_rows, raise_on_all, sum_counts, world
from harken.training.gradients import clip_gradients, gradient_sum
from harken.training.optimizer import MuonConfig, OptimizerConfig, scale_learning_rates
from harken.training.origins import WeightsLoaded
from harken.training.runtime import RuntimeConfig, mixed_precision
from harken.training.schedule import ScheduleConfig
from harken.training.sharding import gathered, uses_sharding
from harken.training.signals import Interrupted, StopSignals


@dataclass(frozen=True, kw_only=True, slots=True)
class StageConfig:
    """Steps, optimizer, schedule and evaluation of a training stage."""

    steps: int = bounded(1000, at_least=0, at_most=MAX_STEPS)  # number of optimizer steps
    # number of batches per step: a power of two, divisible by the number of processes
    micro_batches: int = bounded(1, at_least=1, at_most=2**20)
    # maximum norm of the gradients, which are scaled down to it
    max_grad_norm: float = bounded(1.0, above=0.0)
    optimizer: OptimizerConfig = MuonConfig()  # optimizer and its learning rate
    schedule: ScheduleConfig = ScheduleConfig()  # learning rate over the steps
    # average of the weights over the steps, which is evaluated and kept
    average: AverageConfig = NoAverageConfig()
    # steps between evaluations on the dev set; 0 disables them
    evaluate_every: int = bounded(0, at_least=0, at_most=MAX_STEPS)
    # number of evaluations without improvement after which the stage stops; 0 disables stopping
    patience: int = bounded(0, at_least=0, at_most=MAX_STEPS)
    save_every: int = bounded(500, at_least=1, at_most=MAX_STEPS)  # steps between checkpoints

    def __post_init__(self) -> None:
        if self.micro_batches.bit_count() != 1:
            raise ValueError(f"micro_batches = {self.micro_batches} (expected a power of two)")
        if self.average.kind == "checkpoints" and self.evaluate_every == 0:
            raise ValueError('average.kind = "checkpoints" (expected evaluate_every of 1 or more)')


def stage_configs(training: object) -> list[tuple[str, StageConfig]]:
    """Return the stages of the table [training] of a recipe with their names."""
    if isinstance(training, StageConfig):
        return [("training", training)]
    assert is_dataclass(training)
    values = ((field.name, getattr(training, field.name)) for field in fields(training))
    return [(f"training.{name}", value) for name, value in values if isinstance(value, StageConfig)]


def check_micro_batches(stages: Iterable[tuple[str, StageConfig]], processes: int) -> None:
    """Raise if processes cannot share the micro-batches of a step of each stage equally."""
    for name, stage in stages:
        if stage.micro_batches % processes:
            raise UserError(
                f"{name}.micro_batches: {processes} processes cannot share {stage.micro_batches} "
                f"micro-batches (expected a multiple of {processes})",
                fix=f"start 1, 2, 4, … processes, or set {name}.micro_batches to a power of two "
                f"from {processes} on",
            )


SomeBatch = TypeVar("SomeBatch", bound="Batch")


@runtime_checkable
class Batch(Protocol):
    """Tensors of a training step or a part of it; `num_targets` targets contribute to the loss."""

    @property
    def num_targets(self) -> int: ...

    def to(self: SomeBatch, device: torch.device) -> SomeBatch: ...


Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class MicroBatch(Generic[Model]):
    """A part of a micro-batch, and the sum of its losses as a function of the model.

    `micro_batches` of `StageConfig` counts whole micro-batches. Each is a list of parts, because
    parts of different shapes need less padding.
    """

    batch: Batch
    loss: Callable[[Model, torch.device], Tensor]

    @property
    def num_targets(self) -> int:
        return self.batch.num_targets


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[Model]):
    """A stage of training: its config, the batch of each index, and a value to maximize."""

    name: str
    config: StageConfig
    batch: Callable[[int], Sequence[MicroBatch[Model]]]
    evaluate: Callable[[Model], float] | None = None


def micro_batch(batch: SomeBatch, loss: Callable[[Model, SomeBatch], Tensor]) -> MicroBatch[Model]:
    """Bind a batch to its loss."""
    return MicroBatch(batch, lambda model, device: loss(model, batch.to(device)))


def stage(
    name: str,
    config: StageConfig,
    batch: Callable[[int], Sequence[SomeBatch]],
    loss: Callable[[Model, SomeBatch], Tensor],
    evaluate: Callable[[Model], float] | None = None,
) -> Stage[Model]:
    """Bind batches to their loss; a batch depends only on its index."""

    def parts(index: int) -> list[MicroBatch[Model]]:
        return [micro_batch(part, loss) for part in batch(index)]

    return Stage(name=name, config=config, batch=parts, evaluate=evaluate)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDone:
    """One optimizer step."""

    stage: str
    step: int  # steps done, this one included
    steps: int
    loss: float
    lr: float  # learning rate of the optimizer's main parameter group
    norm: float  # of the gradients before clipping
    tokens: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationDone:
    """The value on the dev set after a step, and whether it is the best so far."""

    stage: str
    step: int
    value: float
    best: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSaved:
    """A checkpoint was written."""

    stage: str
    step: int
    path: Path


Event = StepDone | EvaluationDone | CheckpointSaved | WeightsLoaded


def derive_seed(*numbers: int) -> int:
    """Return one seed made of several numbers, the same on every machine."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class Training(Generic[Model]):
    """Train a model in stages: iterate to train; `save` may be called between any two events."""

    def __init__(
        self,
        model: Model,
        stages: Sequence[Stage[Model]],
        *,
        seed: int,
        runtime: RuntimeConfig,
        device: torch.device,
        checkpoints: Path,
        stop: StopSignals | None = None,
    ) -> None:
        """A stop signal interrupts an evaluation at once, but steps only in `check_stop`."""
        self.model, self.stages, self.seed = model, stages, seed
        self.runtime, self.device, self.checkpoints = runtime, device, checkpoints
        self.progress, self._stop = Progress(), stop or StopSignals()
        self.best: Weights | None = None
        self.kept: Sequence[Weights] = ()  # sets of weights whose mean is the average
        self._optimizers: list[torch.optim.Optimizer] = []
        self._signal = 0  # received by any process before the end of the last step
        self._gradients = gradient_sum(model, runtime, len(stages))

    def resume(self) -> bool:
        """Continue from the newest checkpoint; False if there is none."""
        stored = load_checkpoint(self.checkpoints)
        if stored is None:
            return False
        load_model_state(self.model, stored.model, self.checkpoints)
        self.progress, self.best = stored.progress, stored.best
        state = model_state(self.model)
        self.kept = [weights_like(state, weights, self.checkpoints) for weights in stored.kept]
        if self.progress.stage < len(self.stages) and self.progress.step > 0:
            self._optimizers = self._stage.config.optimizer.build(self.model)
            load_optimizer_state(self.model, self._optimizers, stored.optimizer)
        return True

    def __iter__(self) -> Iterator[Event]:
        while self.progress.stage < len(self.stages):
            yield from self._run_stage()

    def save(self) -> CheckpointSaved:
        """Write a checkpoint of the present state."""
        checkpoint = Checkpoint(
            progress=self.progress,
            model=model_state(self.model),
            best=self.best,
            optimizer=optimizer_state(self.model, self._optimizers),
            kept=self.kept,
        )
        path = checkpoint_path(self.checkpoints, self.progress)
        save_checkpoint(self.checkpoints, checkpoint)
        stage = self.stages[min(self.progress.stage, len(self.stages) - 1)]
        return CheckpointSaved(stage=stage.name, step=self.progress.step, path=path)

    @property
    def _stage(self) -> Stage[Model]:
        return self.stages[self.progress.stage]

    def _run_stage(self) -> Iterator[Event]:
        stage, config = self._stage, self._stage.config
        if self.progress.step == 0:
            self._optimizers = config.optimizer.build(self.model)
        if self.progress.evaluation_due:  # stopped between a step and its evaluation
            yield self._evaluate(stage)
        while self.progress.step < config.steps and not (
            0 < config.patience <= self.progress.rounds_without_gain
        ):
            yield self._step(stage)
            if self.progress.evaluation_due:
                yield self._evaluate(stage)
            done = self.progress.step
            if done < config.steps and done % config.save_every == 0:
                yield agree(self.save)
        if self.best is None and self.kept:
            self.best = mean_weights(self.kept)
        if self.best is not None:
            load_model_state(self.model, self.best, self.checkpoints)
        self.progress, self.best, self.kept = Progress(stage=self.progress.stage + 1), None, ()
        self._optimizers = []
        yield agree(self.save)

    def _step(self, stage: Stage[Model]) -> StepDone:
        config, step, started = stage.config, self.progress.step, time.perf_counter()
        count = config.micro_batches
        share = count // world().size
        numbers = range(world().rank * share, (world().rank + 1) * share)
        micro_batches = [stage.batch(step * count + number) for number in numbers]
        tokens = sum_counts(sum(part.num_targets for parts in micro_batches for part in parts))
        self.model.train()
        self._gradients.begin()
        losses = []
        with nullcontext() if self.runtime.compile else onednn_linears(self.model):
            for number, parts in zip(numbers, micro_batches, strict=True):
                torch.manual_seed(derive_seed(self.seed, self.progress.stage, step, number))
                is_last = number == numbers[-1]
                losses.append(self._backward(parts, tokens, is_last))
                self._gradients.add()
        losses, has_gradient = self._exchange(losses)
        total = sum(losses)
        if not math.isfinite(total):
            error = Failure(
                f"stage {stage.name!r}, step {step + 1}: the loss is {total}",
                fix="lower optimizer.lr or raise schedule.warmup, then train in a new folder",
            )
            raise_on_all(error)
        self._gradients.reduce(count, has_gradient)
        norm = clip_gradients(self.model, config.max_grad_norm)
        scale_learning_rates(self._optimizers, factor := config.schedule.factor(step, config.steps))
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        done, interval = step + 1, config.evaluate_every
        self.kept = config.average.after_step(self.kept, model_state(self.model), done)
        at_interval = interval > 0 and (done == config.steps or done % interval == 0)
        due = at_interval and stage.evaluate is not None
        self.progress = replace(self.progress, step=done, evaluation_due=due)
        return StepDone(
            stage=stage.name,
            step=done,
            steps=config.steps,
            loss=total,
            lr=config.optimizer.lr * factor,
            norm=norm,
            tokens=tokens,
            seconds=time.perf_counter() - started,
        )

    def _backward(self, parts: Sequence[MicroBatch[Model]], tokens: int, is_last: bool) -> float:
        """Compute the gradients of a micro-batch and return its share of the loss."""
        total, gradients = 0.0, self._gradients
        for part in parts:
            with gradients.part(is_last and part is parts[-1]):
                with mixed_precision(self.runtime, self.device):
                    loss = part.loss(gradients.model, self.device) / max(tokens, 1)
                (loss * gradients.loss_scale).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def _exchange(self, losses: Sequence[float]) -> tuple[list[float], list[bool]]:
        """Return the losses of all micro-batches, and which parameters any process has used.

        All processes also learn of a signal that one of them has received, so that they stop after
        the same step.
        """
        has_gradient, signal = self._gradients.has_gradient(), self._stop.received or 0
        rows = gather_rows(torch.tensor([*losses, signal, *has_gradient], dtype=torch.float64))
        count = len(losses)
        self._signal = int(rows[:, count].max())
        return rows[:, :count].flatten().tolist(), rows[:, count + 1 :].any(dim=0).tolist()

    def check_stop(self) -> None:
        """Raise `Interrupted` if a signal was received, on all ranks after the same step."""
        number = self._signal if world().size > 1 else self._stop.received
        if number:
            raise Interrupted(number)

    def _evaluate(self, stage: Stage[Model]) -> EvaluationDone:
        assert stage.evaluate is not None
        self.model.eval()
        # All ranks write a checkpoint of a sharded model together, so none may stop alone.
        sharded = uses_sharding(self.runtime)
        kept = stage.config.average.at_evaluation(self.kept, model_state(self.model))
        best = self.progress.best
        with replaced_weights(self.model, kept, self.checkpoints):
            with gathered(self.model), nullcontext() if sharded else self._stop.immediate():
                value = stage.evaluate(self.model)
            better = not math.isnan(value) and (best is None or value > best)
            if better:
                self.best = copy_weights(model_state(self.model))
        self.kept = kept
        self.progress = replace(
            self.progress,
            best=value if better else best,
            rounds_without_gain=0 if better else self.progress.rounds_without_gain + 1,
            evaluation_due=False,
        )
        return EvaluationDone(stage=stage.name, step=self.progress.step, value=value, best=better)
