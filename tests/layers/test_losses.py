"""Cross-entropy against PyTorch's own: values, gradients, and what it holds in memory."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harken.cost.memory import footprint
from harken.layers import losses as module
from harken.layers.losses import cross_entropy_


def drawn(rows: int, symbols: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, targets, and a weight of each row."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(rows, symbols, generator=generator, dtype=torch.float64)
    targets = torch.randint(symbols, (rows,), generator=generator)
    return scores.requires_grad_(), targets, torch.rand(rows, generator=generator).double()


@given(st.integers(0, 9), st.integers(1, 40), st.integers(0, 99), st.sampled_from([0.0, 0.1, 0.9]))
def test_values_and_gradients_are_pytorchs(
    rows: int, symbols: int, seed: int, smoothing: float
) -> None:
    scores, targets, weights = drawn(rows, symbols, seed)
    ours = cross_entropy_(scores * 1, targets, smoothing)
    theirs = F.cross_entropy(scores, targets, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad((loss * weights).sum(), scores)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cached", [1, 20, 33, 1 << 18])
def test_result_does_not_depend_on_the_split(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, targets, weights = drawn(7, 11, 0)
    found = []
    for together in (1 << 18, cached):
        monkeypatch.setattr(module, "CPU_ELEMENTS", together)
        losses = cross_entropy_(scores * 1, targets, 0.1)
        found.append((losses.detach(), *torch.autograd.grad((losses * weights).sum(), scores)))
    for actual, other in zip(*found, strict=True):
        assert torch.equal(actual, other)


def test_tiny_probabilities_are_finite() -> None:
    scores = torch.tensor([[0.0, 500.0], [-500.0, 500.0]])
    assert cross_entropy_(scores, torch.tensor([0, 0])).tolist() == [500.0, 1000.0]


def test_half_precision_is_converted() -> None:
    scores = torch.randn(3, 5).bfloat16()
    actual = cross_entropy_(scores.clone(), torch.tensor([0, 1, 2]))
    expected = F.cross_entropy(scores.float(), torch.tensor([0, 1, 2]), reduction="none")
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected)


def test_memory_is_that_of_the_logits() -> None:
    """Bytes that PyTorch's allocator gave out and had not got back, at the most."""
    states = torch.randn(512, 8, requires_grad=True)
    reader, targets = torch.randn(1 << 14, 8), torch.randint(1 << 14, (512,))
    scores = 512 * (1 << 14) * 4

    def read() -> Tensor:
        return F.linear(states, reader)

    assert footprint(lambda: cross_entropy_(read(), targets).sum()).peak < 1.2 * scores
    theirs = footprint(lambda: F.cross_entropy(read(), targets, reduction="sum"))
    assert theirs.peak > 2.5 * scores


def test_later_use_of_the_logits_is_rejected() -> None:
    inputs = torch.randn(3, 5, requires_grad=True)
    bent = inputs.exp()  # which keeps what it wrote
    loss = cross_entropy_(bent, torch.tensor([0, 1, 2])).sum()
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


def test_a_second_backward_pass_is_refused() -> None:
    scores = torch.randn(3, 5, requires_grad=True)
    loss = cross_entropy_(scores * 1, torch.tensor([0, 1, 2])).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(AssertionError, match="one backward pass"):
        loss.backward()
