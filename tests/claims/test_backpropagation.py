import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from harken.claims.backpropagation import Backpropagated, TanhWeights, backpropagate
from harken.layers.recurrent import RecurrentState, TanhConfig

TIME, WIDTH, HIDDEN, LABELS = 7, 5, 3, 11
NAMES = ["U", "V", "W", "x", "h0"]


@pytest.fixture
def leaves() -> list[Tensor]:
    """U, V, W, x and h_0."""
    shapes = [(HIDDEN, WIDTH), (HIDDEN, HIDDEN), (LABELS, HIDDEN), (TIME, WIDTH), (HIDDEN,)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.fixture
def targets() -> Tensor:
    return torch.randint(LABELS, (TIME,))


def by_hand(leaves: list[Tensor], targets: Tensor) -> Backpropagated:
    U, V, W, inputs, first = leaves
    return backpropagate(TanhWeights(U, V, W), inputs, first, targets)


def gradients(result: Backpropagated) -> list[Tensor]:
    weights = result.weights
    return [weights.inputs, weights.states, weights.outputs, result.inputs, result.first]


def losses(leaves: list[Tensor], targets: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """L_1 .. L_T and h_0 .. h_T, for autograd."""
    U, V, W, inputs, first = leaves
    states, each = [first], []
    for token, target in zip(inputs, targets, strict=True):
        states.append(torch.tanh(U @ token + V @ states[-1]))
        each.append(F.cross_entropy(W @ states[-1], target))
    return each, states


def test_equals_autograd(leaves: list[Tensor], targets: Tensor) -> None:
    each, _ = losses(leaves, targets)
    result = by_hand(leaves, targets)
    assert result.loss == pytest.approx(sum(each).item(), abs=1e-12)
    expected = torch.autograd.grad(sum(each), leaves)
    for name, ours, theirs in zip(NAMES, gradients(result), expected, strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-10, msg=name)


def test_no_graph_is_left_behind(leaves: list[Tensor], targets: Tensor) -> None:
    assert not any(part.requires_grad for part in gradients(by_hand(leaves, targets)))


def test_equals_the_fused_recurrence_under_autograd(leaves: list[Tensor], targets: Tensor) -> None:
    U, V, W, inputs, first = leaves
    recurrent = TanhConfig(hidden=HIDDEN).build(WIDTH).double()
    layer = recurrent.forwards[0]
    with torch.no_grad():
        layer.weight_ih_l0.copy_(U)
        layer.weight_hh_l0.copy_(V)
    states, _ = recurrent(inputs[None], None, RecurrentState(first[None, None], None))
    loss = F.cross_entropy(states[0] @ W.T, targets, reduction="sum")
    wanted = [layer.weight_ih_l0, layer.weight_hh_l0, W, inputs, first]
    expected = torch.autograd.grad(loss, wanted)
    for name, ours, theirs in zip(
        NAMES, gradients(by_hand(leaves, targets)), expected, strict=True
    ):
        assert_close(ours, theirs, rtol=0, atol=1e-10, msg=name)


def test_equals_finite_differences(leaves: list[Tensor], targets: Tensor) -> None:
    leaves = [leaf.detach() for leaf in leaves]

    def difference(leaf: Tensor, place: tuple[int, ...], step: float = 1e-5) -> float:
        before = leaf[place].item()
        leaf[place] = before + step
        above = by_hand(leaves, targets).loss
        leaf[place] = before - step
        below = by_hand(leaves, targets).loss
        leaf[place] = before
        return (above - below) / (2 * step)

    for name, leaf, gradient in zip(
        NAMES, leaves, gradients(by_hand(leaves, targets)), strict=True
    ):
        for flat in range(leaf.numel()):
            place = tuple(int(one) for one in torch.unravel_index(torch.tensor(flat), leaf.shape))
            assert gradient[place].item() == pytest.approx(difference(leaf, place), abs=1e-7), name


def test_the_reach_of_the_last_loss_equals_autograd(leaves: list[Tensor], targets: Tensor) -> None:
    each, states = losses(leaves, targets)
    expected = [one.norm().item() for one in torch.autograd.grad(each[-1], states)]
    reach = by_hand(leaves, targets).reach
    assert len(reach) == TIME + 1
    assert list(reach) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("scale", "compare"), [(0.5, float.__lt__), (2.0, float.__gt__)])
def test_by_hand_a_gradient_vanishes_or_explodes(
    scale: float, compare: Callable[[float, float], bool]
) -> None:
    """States of zero have the slope V itself, so each step back multiplies by `scale`."""
    weights = TanhWeights(
        torch.zeros(2, 1, dtype=torch.float64),
        scale * torch.eye(2, dtype=torch.float64),
        torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64),
    )
    nothing = torch.zeros(4, 1, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    result = backpropagate(weights, *nothing, torch.zeros(4, dtype=torch.long))
    assert result.loss == pytest.approx(4 * math.log(2))
    assert result.reach == pytest.approx([0.5 * scale ** (4 - t) for t in range(5)])
    assert compare(result.reach[0], result.reach[4])
