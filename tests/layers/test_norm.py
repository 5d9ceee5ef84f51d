import pytest
import torch
from torch import nn
from torch.testing import assert_close

from harken.layers.norm import NormConfig


@pytest.mark.parametrize(("kind", "reference"), [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
@pytest.mark.parametrize("epsilon", [1e-5, 0.3])
def test_agrees_with_pytorch_forward_and_backward(
    kind: str, reference: type[nn.Module], epsilon: float
) -> None:
    ours = NormConfig(kind=kind, eps=epsilon).build(7).double()
    theirs = reference(7, eps=epsilon).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(2, 3, 7, dtype=torch.float64)
    inputs[0, 1] = 0.0  # the size of nothing has no direction
    results = []
    for module in (ours, theirs):
        read = inputs.clone().requires_grad_()
        output = module(read)
        (output * torch.arange(7)).sum().backward()
        results.append((output, read.grad, *(parameter.grad for parameter in module.parameters())))
    for actual, other in zip(*results, strict=True):
        assert_close(actual, other, rtol=0, atol=1e-12)
