import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from harken.claims.lecture29_rnn import TanhWeights, backpropagate

TIME, WIDTH, HIDDEN, LABELS = 7, 5, 3, 11


def test_equals_autograd() -> None:
    shapes = [(HIDDEN, WIDTH), (HIDDEN, HIDDEN), (LABELS, HIDDEN)]
    U, V, W = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    inputs, targets = torch.randn(TIME, WIDTH).double(), torch.randint(LABELS, (TIME,))
    state, expected = torch.zeros(HIDDEN).double(), torch.zeros(()).double()
    for token, target in zip(inputs, targets, strict=True):
        state = torch.tanh(U @ token + V @ state)
        expected = expected + F.cross_entropy(W @ state, target)
    loss, gradients = backpropagate(TanhWeights(U, V, W), inputs, targets)
    assert loss == pytest.approx(expected.item(), abs=1e-12)
    ours = (gradients.inputs, gradients.states, gradients.outputs)
    theirs = torch.autograd.grad(expected, [U, V, W])
    assert not any(gradient.requires_grad for gradient in ours)
    for name, gradient, autograd in zip("UVW", ours, theirs, strict=True):
        assert_close(gradient, autograd, rtol=0, atol=1e-10, msg=name)
