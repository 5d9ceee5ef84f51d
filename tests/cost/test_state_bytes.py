"""Compare predicted bytes with the bytes that a training step allocates, reads and writes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harken.cost.step import trace_step
from harken.cost.workload import Workload, count_formulas, trace_workload, workload
from harken.recipe import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = ("model.layers=2", "model.width=64")
OPTIMIZERS = {
    "adamw": "{kind='adamw'}",
    "muon": "{kind='muon'}",
    "muon with kernels": "{kind='muon',conv_kernels=true}",
    "sgd": "{kind='sgd'}",
    "sgd with momentum": "{kind='sgd',momentum=0.9}",
}


def trained_by(name: str, task: str) -> Workload:
    stage = {"lm": "training", "caption": "training.captions"}[task]
    sets = (f"{stage}.optimizer={OPTIMIZERS[name]}", *(SMALL if task == "lm" else ()))
    recipe = load_recipe(RECIPES / f"{task}.toml", sets)
    return workload(recipe, batch=3, length=5, vocabulary=211)


def with_gradients(step: Workload) -> tuple[torch.nn.Module, list[Optimizer]]:
    model = step.build()
    step.loss()(model).backward()  # type: ignore[no-untyped-call]
    return model, step.stage.optimizer.build(model)


def bytes_of(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("task", ["lm", "caption"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_gradients_and_optimizer_state(name: str, task: str) -> None:
    step = trained_by(name, task)
    model, optimizers = with_gradients(step)
    for optimizer in optimizers:
        optimizer.step()
    state = [
        value
        for optimizer in optimizers
        for memory in optimizer.state.values()
        for value in memory.values()
        if isinstance(value, Tensor)
    ]
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    expected = bytes_of(*model.parameters(), *gradients, *state)
    assert trace_workload(step).state_bytes == expected


class Traffic(TorchDispatchMode):
    """Count the bytes that operations read and write; views count 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        result = operation(*arguments, **(named or {}))
        if not operation.is_view and operation is not torch.ops.aten._unsafe_view.default:
            read = [leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, Tensor)]
            written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            changed = [
                leaf
                for argument, schema in zip(arguments, operation._schema.arguments, strict=False)
                if schema.alias_info is not None
                and schema.alias_info.is_write
                and schema.name != "grads"  # the fused kernel only rescales them
                for leaf in tree_leaves(argument)
                if isinstance(leaf, Tensor)
            ]
            new = {leaf.data_ptr(): leaf for leaf in (*written, *changed)}
            self.bytes += bytes_of(*read, *new.values())
        return result


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_traffic_of_an_optimizer_step(name: str) -> None:
    step = trained_by(name, "caption" if "kernels" in name else "lm")
    _, optimizers = with_gradients(step)
    for optimizer in optimizers:
        optimizer.step()  # makes the state
    with Traffic() as traffic:
        for optimizer in optimizers:
            optimizer.step()
    nothing = torch.zeros(())
    predicted = trace_step(lambda _: step.build(), lambda _: nothing, step.stage.optimizer.build)
    assert predicted.traffic == pytest.approx(traffic.bytes, rel=0.02)


def attention(score: str, **others: object) -> str:
    settings = "".join(f",{name}={value}" for name, value in others.items())
    return f"attention={{score={score}{settings}}}"


ADDITIVE, MERGED = "{kind='additive'}", "{kind='merged'}"
DENSE, RANDOM = "{kind='synthesizer'}", "{kind='synthesizer',form='random'}"
DISTANCES = "{kind='transformer_xl'}"
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    **{
        f"lm {score}{others}": ("lm", (*SMALL, f"model.{attention(score, **others)}"))
        for score in (ADDITIVE, MERGED, DENSE, RANDOM, DISTANCES)
        for others in ({"heads": 4}, {"heads": 4, "dropout": 0.1}, {"heads": 1})
    },
    "lm shared keys": ("lm", (*SMALL, f"model.{attention(ADDITIVE, heads=4, kv_heads=2)}")),
    "lm relative": ("lm", (*SMALL, "model.position.kind=relative")),
    **{
        f"fill {score}": (
            "fill",
            (
                "model.kind=masked",
                f"model.encoder={{kind='transformer',layers=1,{attention(score)}}}",
            ),
        )
        for score in (ADDITIVE, MERGED, DENSE, RANDOM, DISTANCES)
    },
    "caption rnn": ("caption", ("model.decoder={kind='rnn',attention={heads=2}}",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bytes_that_autograd_saves(name: str) -> None:
    task, sets = CASES[name]
    length = 5 if task == "caption" else 101
    recipe = load_recipe(RECIPES / f"{task}.toml", sets)
    step = workload(recipe, batch=3, length=length, vocabulary=31)
    model, loss = step.build(), step.loss()
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor  # alive: addresses stay unique
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        result = loss(model)
    expected = sum(
        tensor.untyped_storage().nbytes() for at, tensor in saved.items() if at not in weights
    )
    assert result.requires_grad
    assert trace_workload(step).saved_bytes == pytest.approx(expected, rel=0.05)


def test_frozen_layers_have_no_gradients_and_no_optimizer_state() -> None:
    sets = (*SMALL, "model.freeze=1", "training.optimizer.kind=adamw")
    recipe = load_recipe(RECIPES / "lm.toml", sets)
    step = workload(recipe, batch=3, length=5, vocabulary=211)
    weights = dict(step.build().named_parameters())
    trained = [
        weight
        for name, weight in weights.items()
        if name.startswith(("stack.blocks.1.", "stack.norm."))
    ]
    # A gradient, two moments and a float32 step number of each trained tensor.
    expected = bytes_of(*weights.values()) + 3 * bytes_of(*trained) + 4 * len(trained)
    assert trace_workload(step).state_bytes == expected
    formulas = count_formulas(step)
    deeper = load_recipe(RECIPES / "lm.toml", (*sets, "model.layers=7"))
    cost = trace_workload(workload(deeper, batch=3, length=5, vocabulary=211))
    for name in ("step", "state_bytes", "saved_bytes"):
        formula = formulas[name]
        assert formula is not None
        assert formula.value({**step.letters, "L": 7}) == getattr(cost, name)
