import pytest
import torch
from torch.testing import assert_close

from harken.attention.dropout import LEVELS
from harken.layers.dropout import Dropout


@pytest.mark.parametrize("share", [0.1, 0.3, 0.75])
def test_dropped_fraction_and_mean(share: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(701, 1009, dtype=torch.float64)
    dropped = Dropout(share)(ones)
    fallen = (dropped == 0).double().mean().item()
    spread = (share * (1 - share) / ones.numel()) ** 0.5
    assert fallen == pytest.approx(share, abs=4 * spread + 1 / LEVELS)
    kept = dropped[dropped != 0].unique()
    assert len(kept) == 1 and kept.item() == pytest.approx(1 / (1 - share), rel=1 / LEVELS / 0.2)


def test_elements_are_dropped_independently() -> None:
    """Four elements share one draw of 64 bits: each pair of places must still be independent."""
    torch.manual_seed(1)
    fallen = (Dropout(0.5)(torch.ones(200_000, 4)) == 0).double()
    assert_close(torch.corrcoef(fallen.T), torch.eye(4).double(), rtol=0, atol=0.01)


def test_the_gradient_is_the_mask() -> None:
    torch.manual_seed(2)
    inputs = torch.randn(3, 5, 7, requires_grad=True)
    outputs = Dropout(0.4)(inputs)
    outputs.sum().backward()
    assert_close(inputs.grad * inputs.detach(), outputs.detach())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_any_count_of_elements(count: int) -> None:
    assert Dropout(0.5)(torch.ones(count, 1)).shape == (count, 1)


def test_seed_determines_the_mask() -> None:
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(11, 13))

    assert torch.equal(drawn(3), drawn(3))
    assert (drawn(3) != drawn(4)).any()


def test_inactive_in_evaluation_or_at_zero() -> None:
    inputs = torch.randn(5, 7)
    assert Dropout(0.0)(inputs) is inputs
    assert Dropout(0.9).eval()(inputs) is inputs
    assert (Dropout(1 - 1e-9)(inputs) == 0).all()
