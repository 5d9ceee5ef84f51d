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


def autograd_loss(leaves: list[Tensor], targets: Tensor) -> Tensor:
    """The sum of L_1 .. L_T."""
    U, V, W, inputs, state = leaves
    losses = []
    for token, target in zip(inputs, targets, strict=True):
        state = torch.tanh(U @ token + V @ state)
        losses.append(F.cross_entropy(W @ state, target))
    return torch.stack(losses).sum()


def test_equals_autograd(leaves: list[Tensor], targets: Tensor) -> None:
    loss = autograd_loss(leaves, targets)
    result = by_hand(leaves, targets)
    assert result.loss == pytest.approx(loss.item(), abs=1e-12)
    expected = torch.autograd.grad(loss, leaves)
    for name, ours, theirs in zip(NAMES, gradients(result), expected, strict=True):
        assert not ours.requires_grad
        assert_close(ours, theirs, rtol=0, atol=1e-10, msg=name)


def test_equals_the_fused_recurrence_under_autograd(leaves: list[Tensor], targets: Tensor) -> None:
    U, V, W, inputs, first = leaves
    recurrent = TanhConfig(hidden=HIDDEN).build(WIDTH).double()
    layer = recurrent.forwards[0]
    with torch.no_grad():
        layer.weight_ih_l0.copy_(U)
        layer.weight_hh_l0.copy_(V)
    states, _ = recurrent(inputs[None], None, RecurrentState(first[None, None], None))
    loss = F.cross_entropy(states[0] @ W.T, targets, reduction="sum")
    expected = torch.autograd.grad(loss, [layer.weight_ih_l0, layer.weight_hh_l0, W, inputs, first])
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
            place = tuple(int(axis) for axis in torch.unravel_index(torch.tensor(flat), leaf.shape))
            assert gradient[place].item() == pytest.approx(difference(leaf, place), abs=1e-7), name
