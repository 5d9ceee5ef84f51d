"""Gradients of micro-batches are summed in one tree, whoever computes them."""

from functools import reduce

import pytest
import torch
from torch import Tensor, nn

from harken.training import distributed
from harken.training.gradients import ExactSum
from harken.training.runtime import RuntimeConfig

FEATURES, MICRO_BATCHES = 5, 8


def norm_and_linear() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 3), nn.Linear(3, 1))


def accumulate(model: nn.Sequential, batches: list[Tensor]) -> ExactSum[nn.Sequential]:
    gradients = ExactSum(model, RuntimeConfig())
    gradients.begin()
    for batch in batches:
        model(batch).square().sum().backward()
        gradients.add()
    return gradients


def node(gradients: ExactSum[nn.Sequential]) -> list[Tensor]:
    (root,) = gradients._nodes
    return [tensor for tensor in root if tensor is not None]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_any_number_of_ranks_gives_the_same_bits(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compute the subtrees of each rank in turn, and add them as `all_reduce_exact` does."""
    torch.manual_seed(7)
    batches = list(torch.randn(MICRO_BATCHES, 11, FEATURES))
    expected = norm_and_linear()
    accumulate(expected, batches).reduce(MICRO_BATCHES, [True] * 6)

    model, share = norm_and_linear(), MICRO_BATCHES // ranks
    subtrees = [
        accumulate(model, batches[rank * share : (rank + 1) * share]) for rank in range(ranks)
    ]
    rows = zip(*map(node, subtrees), strict=True)
    totals = [distributed.sum_tree(torch.stack(row).flatten(1)) for row in rows]

    def all_reduce(tensors: list[Tensor]) -> None:
        for tensor, total in zip(tensors, totals, strict=True):
            tensor.copy_(total.view_as(tensor))

    monkeypatch.setattr("harken.training.gradients.all_reduce_exact", all_reduce)
    subtrees[0].reduce(MICRO_BATCHES, [True] * 6)
    for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(parameter.grad, other.grad)
    for buffer, other in zip(model.buffers(), expected.buffers(), strict=True):
        assert torch.equal(buffer, other)


def test_statistics_are_averaged_and_gradients_added() -> None:
    torch.manual_seed(7)
    batches = list(torch.randn(4, 11, FEATURES))
    model = norm_and_linear()
    accumulate(model, batches).reduce(4, [True] * 6)

    alone = [norm_and_linear() for _ in batches]
    for other, batch in zip(alone, batches, strict=True):
        other(batch).square().sum().backward()
    for index, parameter in enumerate(model.parameters()):
        total = reduce(torch.add, (list(other.parameters())[index].grad for other in alone))
        torch.testing.assert_close(parameter.grad, total)
    means = torch.stack([other[0].running_mean for other in alone])
    torch.testing.assert_close(model[0].running_mean, means.mean(dim=0))
    assert int(model[0].num_batches_tracked) == 1


def test_an_unused_parameter_has_no_gradient() -> None:
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    gradients = ExactSum(model, RuntimeConfig())
    gradients.begin()
    model[0](torch.ones(1, 2)).sum().backward()
    gradients.add()
    used = gradients.has_gradient()
    gradients.reduce(1, used)
    assert used == [True, True, False, False]
    assert model[0].weight.grad is not None and model[1].weight.grad is None


def test_sum_tree_adds_neighbors_first() -> None:
    big, small = 2.0**24, 1.0  # in float32, big + small == big
    rows = torch.tensor([[big], [small], [-big], [small]])
    assert distributed.sum_tree(rows).item() == big + (-big + small)
