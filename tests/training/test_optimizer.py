import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harken.attention.multihead import MultiHeadConfig
from harken.errors import UserError
from harken.layers.depth import freeze_layers
from harken.models.encoders import TextEncoderConfig
from harken.models.gpt import GPTConfig
from harken.training.optimizer import (
    AdamWConfig,
    Muon,
    MuonConfig,
    SGDConfig,
    layer_matrices,
    orthogonalize,
    scale_learning_rates,
)

SHAPES = [(5, 17), (17, 5), (13, 13), (1, 7)]


def random(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_singular_values(rows: int, columns: int, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(matrix, left vectors, right vectors)."""
    left, _ = torch.linalg.qr(random(rows, len(values)))
    right, _ = torch.linalg.qr(random(columns, len(values), seed=5))
    return left @ torch.diag(values) @ right.mT, left, right


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_singular_values_become_one_and_vectors_stay(rows: int, columns: int, scale: float) -> None:
    values = torch.logspace(0, -1.5, min(rows, columns)) * scale
    matrix, left, right = with_singular_values(rows, columns, values)
    (straight,) = orthogonalize(matrix[None])
    between = left.mT @ straight @ right  # diagonal where the vectors are the same
    values = between.diagonal()
    torch.testing.assert_close(between, torch.diag(values), rtol=0, atol=1e-4)
    torch.testing.assert_close(left @ between @ right.mT, straight, rtol=0, atol=1e-4)
    assert 0.6 < values.min() <= values.max() < 1.3


def test_the_polynomial_by_hand() -> None:
    # On a 1 x 1 matrix the norm is its size, so the course is that of the number 1.
    number = 1.0
    for _ in range(5):
        number = 3.4445 * number - 4.7750 * number**3 + 2.0315 * number**5
    straight = orthogonalize(torch.tensor([[[-7.0]], [[0.0]]]))
    assert straight[0].item() == pytest.approx(-number, abs=1e-5)
    assert straight[1].item() == 0.0


@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_equals_one_by_one(shape: tuple[int, int]) -> None:
    together = random(3, *shape) * torch.tensor([1e-2, 1.0, 1e2])[:, None, None]
    alone = torch.cat([orthogonalize(matrix[None]) for matrix in together])
    torch.testing.assert_close(orthogonalize(together), alone, rtol=0, atol=1e-6)


def parameters() -> list[nn.Parameter]:
    """Return two parameters of each shape, in mixed order."""
    shapes = [*SHAPES, *reversed(SHAPES)]
    return [nn.Parameter(random(*shape, seed=number)) for number, shape in enumerate(shapes)]


def give_gradients(of: list[nn.Parameter], step: int) -> None:
    for number, parameter in enumerate(of):
        parameter.grad = random(*parameter.shape, seed=100 * step + number)


def straighten(matrix: Tensor) -> Tensor:
    """Newton-Schulz of one matrix, as in Muon's paper."""
    if matrix.shape[0] > matrix.shape[1]:
        return straighten(matrix.mT).mT
    x = matrix / matrix.norm()
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def test_muon_equals_a_slow_loop() -> None:
    ours, slow = parameters(), [parameter.detach().clone() for parameter in parameters()]
    momenta = [torch.zeros_like(weight) for weight in slow]
    optimizer = Muon(ours, lr=0.03, momentum=0.9, weight_decay=0.2)
    for step in range(3):
        give_gradients(ours, step)
        optimizer.step()
        for number, weight in enumerate(slow):
            gradient = ours[number].grad
            assert gradient is not None
            momenta[number] = 0.9 * momenta[number] + 0.1 * gradient
            ahead = 0.1 * gradient + 0.9 * momenta[number]
            size = 0.03 * 0.2 * math.sqrt(max(weight.shape))
            slow[number] = (1 - 0.03 * 0.2) * weight - size * straighten(ahead)
    for weight, expected in zip(ours, slow, strict=True):
        torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-5)


def test_muon_agrees_with_pytorch() -> None:
    ours, theirs = parameters(), parameters()
    mine = Muon(ours, lr=0.03, momentum=0.95, weight_decay=0.1)
    other = torch.optim.Muon(
        theirs, lr=0.03, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    start = [weight.detach().clone() for weight in ours]
    for step in range(3):
        for weights, optimizer in ((ours, mine), (theirs, other)):
            give_gradients(weights, step)
            optimizer.step()
    for before, weight, expected in zip(start, ours, theirs, strict=True):
        # PyTorch orthogonalizes in bfloat16: five rounds agree to a few percent.
        assert (weight - expected).norm() < 0.05 * (weight - before).norm()


def test_muon_skips_parameters_without_gradient() -> None:
    still, moved = nn.Parameter(random(5, 7)), nn.Parameter(random(5, 7, seed=4))
    moved.grad = random(5, 7, seed=5)
    Muon([still, moved], lr=0.1, momentum=0.9, weight_decay=0.1).step()
    assert torch.equal(still, random(5, 7))
    assert not torch.equal(moved, random(5, 7, seed=4))


def test_a_kernel_is_a_matrix_with_a_row_per_channel() -> None:
    kernel, matrix = nn.Parameter(random(5, 2, 3, 3)), nn.Parameter(random(5, 18))
    with torch.no_grad():
        matrix.copy_(kernel.view(5, 18))
    kernel.grad = random(5, 2, 3, 3, seed=4)
    matrix.grad = kernel.grad.view(5, 18).clone()
    for parameter in (kernel, matrix):
        Muon([parameter], lr=0.1, momentum=0.9, weight_decay=0.1).step()
    torch.testing.assert_close(kernel.view(5, 18), matrix, rtol=0, atol=0)


def test_conv_kernels_are_optional() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(5, 7), nn.Conv1d(2, 3, 3))
    for kernels, expected in ((False, ["1.weight"]), (True, ["0.weight", "1.weight"])):
        *_, muon = MuonConfig(conv_kernels=kernels).build(model)
        (group,) = muon.param_groups
        ids = {id(parameter) for parameter in group["params"]}
        assert [name for name, p in model.named_parameters() if id(p) in ids] == expected


def muon_names(model: nn.Module) -> set[str]:
    ids = {id(parameter) for parameter in layer_matrices(model)}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


@pytest.mark.parametrize("tied", [True, False])
def test_muon_gets_the_matrices_of_the_layers(tied: bool) -> None:
    model = GPTConfig(layers=2, width=24, max_length=7, tie_embeddings=tied).build(
        vocabulary=31, seed=0
    )
    chosen = muon_names(model)
    for name, parameter in model.named_parameters():
        inside = name.startswith("stack.") and parameter.dim() == 2
        assert (name in chosen) == inside, name
    assert len(chosen) >= 2 * 4
    adam, muon = MuonConfig().build(model)
    assert isinstance(muon, Muon)
    groups = [*adam.param_groups, *muon.param_groups]
    ids = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(ids) == sorted(id(parameter) for parameter in model.parameters())


def test_tied_embeddings_are_not_matrices_of_layers() -> None:
    model = nn.ModuleDict({"table": nn.Embedding(11, 5), "output": nn.Linear(5, 11)})
    model["output"].weight = model["table"].weight
    assert muon_names(model) == set()


def test_a_model_of_one_kind_needs_one_optimizer() -> None:
    assert [type(optimizer) for optimizer in MuonConfig().build(nn.Linear(5, 7, bias=False))] == [
        Muon
    ]
    (only,) = MuonConfig().build(nn.Embedding(5, 7))
    assert isinstance(only, torch.optim.AdamW)


class Small(nn.Module):
    """A table, a map with its bias, a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.table, self.map, self.norm = nn.Embedding(11, 5), nn.Linear(5, 3), nn.LayerNorm(3)

    def forward(self, tokens: Tensor) -> Tensor:
        read: Tensor = self.norm(self.map(self.table(tokens)))
        return read


def train(model: Small, optimizers: list[torch.optim.Optimizer], steps: int = 5) -> None:
    for step in range(steps):
        model.zero_grad()
        model(torch.tensor([step, 3, 7])).pow(3).sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def test_adamw_equals_unfused_adamw_of_pytorch() -> None:
    ours, theirs = Small(), Small()
    config = AdamWConfig(lr=0.03, weight_decay=0.2, beta1=0.8, beta2=0.9)
    train(ours, config.build(ours))
    whole = [theirs.table.weight, theirs.map.weight]
    flat = [theirs.map.bias, theirs.norm.weight, theirs.norm.bias]
    groups = [{"params": whole, "weight_decay": 0.2}, {"params": flat, "weight_decay": 0.0}]
    train(theirs, [torch.optim.AdamW(groups, lr=0.03, betas=(0.8, 0.9), fused=False)])
    for weight, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-6)


def test_the_fallback_of_muon_has_its_own_settings() -> None:
    model = Small()
    adam, muon = MuonConfig(
        lr=0.05, weight_decay=0.3, fallback=AdamWConfig(lr=0.02, weight_decay=0.4)
    ).build(model)
    settings = {
        id(parameter): (group["lr"], group["weight_decay"])
        for optimizer in (adam, muon)
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert [settings[id(parameter)] for parameter in model.parameters()] == [
        (0.02, 0.4),  # table
        (0.05, 0.3),  # map, its bias
        (0.02, 0.0),
        (0.02, 0.0),  # norm, its bias
        (0.02, 0.0),
    ]


def test_sgd_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(2.0)
    (optimizer,) = SGDConfig(lr=0.1, momentum=0.5).build(model)
    for expected in (1.7, 1.25):  # 2 - 0.1 * 3, then 1.7 - 0.1 * (0.5 * 3 + 3)
        model.weight.grad = torch.tensor([[3.0]])
        optimizer.step()
        assert model.weight.item() == pytest.approx(expected)


def test_rates_are_set_from_the_peak() -> None:
    optimizers = MuonConfig(lr=0.05, fallback=AdamWConfig(lr=0.02)).build(Small())
    for factor in (0.5, 0.0, 1.0, 0.25):  # a factor of 0 must not be final
        scale_learning_rates(optimizers, factor)
        rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
        assert rates == pytest.approx([0.02 * factor] * 2 + [0.05 * factor])


@pytest.mark.parametrize("kind", [AdamWConfig, SGDConfig, MuonConfig])
def test_learning_rates_decay_with_depth(kind: Any) -> None:
    """An encoder of three blocks: a factor of 0.5 from the classifier down to the embeddings."""
    settings = {"layers": 3, "width": 8, "attention": MultiHeadConfig(heads=2), "segments": 2}
    model = nn.Sequential(TextEncoderConfig(**settings).build(11, seed=0), nn.Linear(8, 3))
    fallback = {"fallback": AdamWConfig(lr=1.0, layer_decay=0.5)} if kind is MuonConfig else {}
    optimizers = kind(lr=1.0, layer_decay=0.5, **fallback).build(model)
    scale_learning_rates(optimizers, 0.1)
    names = {parameter: name for name, parameter in model.named_parameters()}
    rates = {
        names[parameter]: group["lr"]
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert rates.keys() == set(names.values())
    for name, rate in rates.items():
        block = re.search(r"blocks\.(\d)", name)
        after = name.startswith("1.") or "stack.norm" in name
        depth = 4 if after else int(block[1]) + 1 if block else 0
        assert rate == pytest.approx(0.1 * 0.5 ** (4 - depth)), name


def test_frozen_layers_have_no_optimizer() -> None:
    model = TextEncoderConfig(layers=3, width=8, attention=MultiHeadConfig(heads=2)).build(11, 0)
    freeze_layers(model, 2)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained and all("blocks.2." in name or "stack.norm" in name for name in trained)
    for config in (AdamWConfig(), SGDConfig(), MuonConfig()):
        groups = [group for optimizer in config.build(model) for group in optimizer.param_groups]
        assert sum(len(group["params"]) for group in groups) == len(trained)
    with pytest.raises(UserError, match=r"model\.freeze = 4, but the model has 3"):
        freeze_layers(model, 4)
    with pytest.raises(UserError, match=r"layer_decay"):
        AdamWConfig(layer_decay=0.9).build(nn.Linear(3, 2))
