"""Steps, stages and evaluations of the loop, and that resuming repeats a run exactly."""

import itertools
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harken.errors import Failure
from harken.tasks.answer import PretrainConfig
from harken.tasks.transcribe_predictor import TranscribeStage
from harken.training.average import (
    AverageConfig,
    CheckpointAverageConfig,
    EMAConfig,
    NoAverageConfig,
)
from harken.training.checkpoint import model_state
from harken.training.loop import (
    CheckpointSaved,
    EvaluationDone,
    Event,
    Stage,
    StageConfig,
    StepDone,
    Training,
    derive_seed,
    stage,
)
from harken.training.optimizer import AdamWConfig, OptimizerConfig, SGDConfig
from harken.training.runtime import RuntimeConfig
from harken.training.schedule import ScheduleConfig

CPU = torch.device("cpu")


class Points(NamedTuple):
    inputs: Tensor
    targets: Tensor

    @property
    def num_targets(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> "Points":
        return self


def points(number: int, count: int = 6) -> Points:
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(count, 3, generator=generator)
    return Points(inputs, inputs.sum(dim=1, keepdim=True))


def squared(model: nn.Module, batch: Points) -> Tensor:
    return F.mse_loss(model(batch.inputs), batch.targets, reduction="sum")


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.3), nn.Linear(5, 1))


def small_stage(
    name: str = "only", evaluate: object = None, **settings: object
) -> Stage[nn.Module]:
    defaults = {"steps": 7, "optimizer": AdamWConfig(), "schedule": ScheduleConfig(warmup=2)}
    return stage(
        name,
        StageConfig(**(defaults | settings)),  # type: ignore[arg-type]
        lambda number: [points(number)],
        squared,
        evaluate,  # type: ignore[arg-type]
    )


def training(
    model: nn.Module, stages: list[Stage[nn.Module]], folder: Path, seed: int = 0
) -> Training[nn.Module]:
    return Training(
        model, stages, seed=seed, runtime=RuntimeConfig(), device=CPU, checkpoints=folder
    )


def test_a_step_of_sgd(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    before = model.weight.detach().clone()
    batch = points(0)
    ((model(batch.inputs) - batch.targets) ** 2).mean().backward()
    gradient = model.weight.grad
    assert gradient is not None
    gradient = gradient.clone()
    model.zero_grad()
    only = small_stage(
        steps=1,
        optimizer=SGDConfig(lr=0.1),
        schedule=ScheduleConfig(warmup=0, decay="constant"),
        max_grad_norm=1e9,
    )
    next(iter(training(model, [only], tmp_path)))
    torch.testing.assert_close(model.weight.detach(), before - 0.1 * gradient)


def test_accumulated_batches_and_parts_equal_one_large_batch(tmp_path: Path) -> None:
    """Of unequal sizes: the mean is over targets, not over batches."""

    def single(number: int) -> list[Points]:
        return [points(number, count=4 + 3 * (number % 2))]

    def in_parts(number: int) -> list[Points]:
        return [*single(2 * number), *single(2 * number + 1)]

    def joined(number: int) -> list[Points]:
        return [Points(*(torch.cat(both) for both in zip(*in_parts(number), strict=True)))]

    results = []
    for name, batch, accumulate in (
        ("joined", joined, 1),
        ("parts", in_parts, 1),
        ("two", single, 2),
    ):
        model = nn.Linear(3, 1, bias=False)
        nn.init.ones_(model.weight)
        config = StageConfig(steps=3, micro_batches=accumulate, optimizer=SGDConfig(lr=0.1))
        only = stage(name, config, batch, squared)
        list(training(model, [only], tmp_path / name))
        results.append(model.weight.detach())
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])


def test_clipping_bounds_the_step(tmp_path: Path) -> None:
    model = nn.Linear(3, 1, bias=False)
    before = model.weight.detach().clone()
    only = small_stage(
        steps=1,
        max_grad_norm=1e-3,
        optimizer=SGDConfig(lr=1.0),
        schedule=ScheduleConfig(warmup=0, decay="constant"),
    )
    next(iter(training(model, [only], tmp_path)))
    assert (model.weight.detach() - before).norm() <= 1.001e-3


OPTIMIZERS: list[OptimizerConfig] = [AdamWConfig(), SGDConfig(momentum=0.9)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("stop", [1, 3, 4, 8, 10])
def test_resuming_repeats_the_run(tmp_path: Path, optimizer: OptimizerConfig, stop: int) -> None:
    """Dropout, momenta, schedule and stage all come out the same, bit for bit."""
    stages = [
        small_stage("first", optimizer=optimizer),
        small_stage("second", optimizer=optimizer, steps=5),
    ]
    straight = network()
    list(training(straight, stages, tmp_path / "straight"))

    first = training(network(), stages, tmp_path / "stopped")
    steps = 0
    for event in first:
        steps += isinstance(event, StepDone)
        if steps == stop:
            first.save()
            break
    torch.manual_seed(99)  # the global generator does not matter
    again = network()
    second = training(again, stages, tmp_path / "stopped")
    assert second.resume()
    list(second)
    for name, weight in model_state(straight).items():
        assert torch.equal(weight, model_state(again)[name]), name


def test_the_best_weights_are_kept_and_patience_ends_a_stage(tmp_path: Path) -> None:
    values = iter([0.1, 0.5, 0.4, 0.3, 0.2, 0.9])
    snapshots = []

    def evaluate(model: nn.Module) -> float:
        snapshots.append({name: tensor.clone() for name, tensor in model_state(model).items()})
        return next(values)

    only = small_stage(evaluate=evaluate, steps=100, evaluate_every=1, patience=3)
    model = network()
    events = list(training(model, [only], tmp_path))
    rounds = [event for event in events if isinstance(event, EvaluationDone)]
    assert [event.value for event in rounds] == [0.1, 0.5, 0.4, 0.3, 0.2]
    assert [event.best for event in rounds] == [True, True, False, False, False]
    for name, weight in model_state(model).items():
        assert torch.equal(weight, snapshots[1][name])


@pytest.mark.parametrize(
    "averages",
    [(NoAverageConfig(), NoAverageConfig()), (EMAConfig(), CheckpointAverageConfig(last=2))],
)
def test_a_run_stopped_after_any_event_resumes_exactly(
    tmp_path: Path, averages: tuple[AverageConfig, AverageConfig]
) -> None:
    """Stopped after a step and before its evaluation, the evaluation is repeated."""

    def evaluate(model: nn.Module) -> float:
        return [0.3, 0.1, 0.4, 0.2][round(1000 * float(model_state(model)["0.bias"].sum())) % 4]

    def new(folder: str) -> Training[nn.Module]:
        every = {"evaluate_every": 2, "patience": 3, "save_every": 4}
        first = small_stage("first", evaluate, steps=9, average=averages[0], **every)
        second = small_stage("second", evaluate, steps=4, average=averages[1], **every)
        return training(network(), [first, second], tmp_path / folder)

    def comparable(event: Event) -> tuple[object, ...]:
        value = event.loss if isinstance(event, StepDone) else event.value
        return type(event), event.stage, event.step, value

    alone = new("alone")
    expected = [comparable(event) for event in alone if not isinstance(event, CheckpointSaved)]
    for stop in range(1, len(expected)):
        stopped = new(f"stopped-{stop}")
        events = (comparable(event) for event in stopped if not isinstance(event, CheckpointSaved))
        observed = list(itertools.islice(events, stop))
        stopped.save()
        resumed = new(f"stopped-{stop}")
        assert resumed.resume()
        observed += [
            comparable(event) for event in resumed if not isinstance(event, CheckpointSaved)
        ]
        assert observed == expected
        final = model_state(resumed.model)
        assert all(torch.equal(w, final[name]) for name, w in model_state(alone.model).items())


def test_an_undefined_dev_value_is_never_the_best(tmp_path: Path) -> None:
    values = iter([float("nan"), 0.1, float("nan")])
    only = small_stage(evaluate=lambda model: next(values), steps=3, evaluate_every=1)
    rounds = [e for e in training(network(), [only], tmp_path) if isinstance(e, EvaluationDone)]
    assert [event.best for event in rounds] == [False, True, False]


def test_events_hold_the_learning_rate(tmp_path: Path) -> None:
    schedule = ScheduleConfig(warmup=2, decay="constant")
    config = SGDConfig(lr=0.25)
    only = small_stage(steps=4, optimizer=config, schedule=schedule)
    steps = [e for e in training(network(), [only], tmp_path) if isinstance(e, StepDone)]
    assert [event.lr for event in steps] == [0.125, 0.25, 0.25, 0.25]


def test_a_loss_that_is_no_number_stops_with_a_sentence(tmp_path: Path) -> None:
    def broken(model: nn.Module, batch: Points) -> Tensor:
        return squared(model, batch) * float("nan")

    bad = stage("bad", StageConfig(steps=2), lambda n: [points(n)], broken)
    with pytest.raises(Failure, match="stage 'bad', step 1: the loss is nan"):
        list(training(network(), [bad], tmp_path))


def test_bfloat16_trains(tmp_path: Path) -> None:
    model = network()
    mixed = Training(
        model,
        [small_stage(steps=3)],
        seed=0,
        runtime=RuntimeConfig(precision="bfloat16"),
        device=CPU,
        checkpoints=tmp_path,
    )
    before = {name: tensor.clone() for name, tensor in model_state(model).items()}
    list(mixed)
    assert all(value.dtype == torch.float32 for value in model_state(model).values())
    assert not torch.equal(before["0.weight"], model_state(model)["0.weight"])


@pytest.mark.parametrize("config", [StageConfig, PretrainConfig, TranscribeStage])
def test_micro_batches_are_a_power_of_two(config: type[StageConfig]) -> None:
    assert config(micro_batches=4).micro_batches == 4
    with pytest.raises(ValueError, match="expected a power of two"):
        config(micro_batches=3)


def test_a_stage_of_no_steps_changes_nothing(tmp_path: Path) -> None:
    model = network()
    before = {name: tensor.clone() for name, tensor in model_state(model).items()}
    list(training(model, [small_stage(steps=0)], tmp_path))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model_state(model).items())


def test_seeds_differ_in_every_part() -> None:
    seeds = {
        derive_seed(seed, number, step)
        for seed in range(3)
        for number in range(3)
        for step in range(9)
    }
    assert len(seeds) == 81
    assert derive_seed(0, 1, 2) == 3071860871404845570
