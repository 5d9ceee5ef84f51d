"""Averages of the weights: formulas, what is evaluated and kept, and exact resume."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_loop import network, small_stage, training
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from harken.training.average import (
    AverageConfig,
    CheckpointAverageConfig,
    EMAConfig,
    blend_,
    mean_weights,
)
from harken.training.checkpoint import model_state
from harken.training.loop import EvaluationDone, Stage, StageConfig, StepDone, Training

STEPS = 13
AVERAGES: list[AverageConfig] = [EMAConfig(decay=0.6), CheckpointAverageConfig(last=3)]


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model_state(model).items()}


def assert_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def raw_weights(only: Stage[nn.Module], folder: Path) -> list[dict[str, Tensor]]:
    """Return the weights after each step of a stage, of which the model keeps the last."""
    trained = training(network(), [only], folder)
    return [copied(trained.model) for event in trained if isinstance(event, StepDone)]


def test_ema_is_that_of_a_loop_and_of_pytorch(tmp_path: Path) -> None:
    """The decay is s / (s + 9) up to step 13, where it is 0.59."""
    decay = 0.55
    raw = raw_weights(small_stage(steps=STEPS), tmp_path / "raw")
    model = network()
    only = small_stage(steps=STEPS, average=EMAConfig(decay=decay))
    list(training(model, [only], tmp_path / "ema"))

    expected = {name: tensor.double() for name, tensor in raw[0].items()}
    source = network()
    theirs = AveragedModel(
        source, avg_fn=lambda old, new, n: old + (1 - min(decay, (n + 1) / (n + 10))) * (new - old)
    )
    for step, weights in enumerate(raw, start=1):
        source.load_state_dict(weights)
        theirs.update_parameters(source)
        share = min(decay, step / (step + 9))
        for name, tensor in weights.items() if step > 1 else ():
            expected[name] = share * expected[name] + (1 - share) * tensor.double()
    for name, tensor in model_state(model).items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(tensor, theirs.module.state_dict()[name], rtol=1e-6, atol=1e-7)
        assert not torch.allclose(tensor, raw[-1][name], atol=1e-5)


def test_the_mean_of_evaluations_is_evaluated_and_the_best_is_kept(tmp_path: Path) -> None:
    values, evaluated = iter([0.1, 0.2, 0.7, 0.4, 0.3]), []

    def evaluate(model: nn.Module) -> float:
        evaluated.append(copied(model))
        return next(values)

    raw = raw_weights(small_stage(steps=10), tmp_path / "raw")
    average = CheckpointAverageConfig(last=3)
    only = small_stage(evaluate=evaluate, steps=10, evaluate_every=2, average=average)
    model = network()
    trained = training(model, [only], tmp_path / "mean")
    for event in trained:
        if isinstance(event, StepDone | EvaluationDone):  # training continues from raw weights
            assert_equal(copied(model), raw[event.step - 1])
    means = [
        {name: sum(raw[step - 1][name].double() for step in steps) / len(steps) for name in raw[0]}
        for steps in ((2,), (2, 4), (2, 4, 6), (4, 6, 8), (6, 8, 10))
    ]
    for weights, mean in zip(evaluated, means, strict=True):
        for name, tensor in weights.items():
            torch.testing.assert_close(tensor.double(), mean[name], rtol=1e-6, atol=1e-7)
    assert_equal(copied(model), evaluated[2])


@pytest.mark.parametrize("average", AVERAGES)
def test_an_interrupted_evaluation_leaves_the_raw_weights(
    tmp_path: Path, average: AverageConfig
) -> None:
    def new(folder: str, evaluate: Callable[[nn.Module], float]) -> Training[nn.Module]:
        only = small_stage(evaluate=evaluate, steps=6, evaluate_every=2, average=average)
        return training(network(), [only], tmp_path / folder)

    def total(model: nn.Module) -> float:
        return -float(sum(tensor.sum() for tensor in model_state(model).values()))

    def interrupted(model: nn.Module) -> float:
        if stopped.progress.step == 4:
            raise KeyboardInterrupt
        return total(model)

    whole = new("whole", total)
    values = [event.value for event in whole if isinstance(event, EvaluationDone)]
    stopped = new("stopped", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(stopped)
    stopped.save()
    resumed = new("stopped", total)
    assert resumed.resume() and resumed.progress.evaluation_due
    assert [e.value for e in resumed if isinstance(e, EvaluationDone)] == values[1:]
    assert_equal(copied(resumed.model), copied(whole.model))


def test_integers_and_constants_are_not_averaged() -> None:
    kept = [
        {"steps": torch.tensor(number), "slopes": torch.tensor([0.1, 1 / 3])}
        for number in (3, 5, 8)
    ]
    assert_equal(mean_weights(kept), kept[-1])
    blend_(kept[0], kept[1], 0.3)
    assert_equal(kept[0], kept[1])


def test_a_mean_of_no_evaluations_is_refused() -> None:
    with pytest.raises(ValueError, match="expected evaluate_every of 1 or more"):
        StageConfig(average=CheckpointAverageConfig())
