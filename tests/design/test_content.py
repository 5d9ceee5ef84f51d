"""Copy, average, lookup and induction agree with their formulas."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from harken.attention.sinusoids import Sinusoids
from harken.design.content import (
    InductionPlan,
    content_sharpness,
    copy_head,
    induction_heads,
    induction_tokens,
    lookup_head,
    lookup_norm,
    lookup_tokens,
)
from harken.design.designs import (
    design_copy,
    design_induction,
    design_lookup,
    measure_worst_query,
)
from harken.design.head import apply_heads, head_attention
from harken.errors import UserError

tolerances = st.sampled_from([0.3, 0.01, 1e-5])


def orthonormal(count: int, width: int) -> torch.Tensor:
    torch.manual_seed(count)
    return torch.linalg.qr(torch.randn(width, width, dtype=torch.float64))[0][:count]


@given(st.integers(2, 23), tolerances, st.integers(0, 10**6))
@settings(max_examples=40)
def test_copy_meets_its_tolerance_exactly(keys: int, tolerance: float, seed: int) -> None:
    index = seed % keys
    tokens = orthonormal(keys, 29)
    head = copy_head(tokens, [index], tolerance)
    weights = head_attention(head, tokens, "bidirectional")[:, index]
    exact = max(1 - tolerance, 1 / keys)  # with few keys, no sharpness is needed
    assert weights.tolist() == pytest.approx([exact] * keys, abs=1e-9)


@given(st.integers(3, 23), tolerances)
@settings(max_examples=40)
def test_average_gives_half_to_each(keys: int, tolerance: float) -> None:
    tokens = orthonormal(keys, 29)
    weights = head_attention(copy_head(tokens, [2, 0], tolerance), tokens, "bidirectional")
    assert_close(weights[:, 0], weights[:, 2], rtol=0, atol=1e-12)
    shared = weights[:, [0, 2]].sum(dim=1)
    assert shared.tolist() == pytest.approx([max(1 - tolerance, 2 / keys)] * keys, abs=1e-9)


def test_lookup_is_that_of_the_document() -> None:
    """Compare V, K and Q as printed, with u of norm beta."""
    directions, beta = orthonormal(4, 7), lookup_norm(0.001)
    a, b, c, d = directions * beta
    head, tokens = lookup_head(directions), lookup_tokens(directions, beta)
    assert_close(head.values, (torch.outer(b, b) - torch.outer(c, c)) / beta**2)
    assert_close(head.queries, (torch.outer(d, a) + torch.outer(c, d)) / beta**2)
    output = apply_heads([head], tokens, "bidirectional") - tokens
    assert_close(output[0], b - c, rtol=0, atol=0.002 * beta)
    assert_close(output[1], b, rtol=0, atol=0.002 * beta)
    # The two other keys have weight e^0, the right one e^(beta^2).
    right = math.exp(beta**2) / (math.exp(beta**2) + 2)
    assert right == pytest.approx(0.999, abs=1e-12)
    weights = head_attention(head, tokens, "bidirectional")
    assert float(weights[0, 2]) == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize(
    "designed",
    [
        design_copy(11, [7], 0.01),
        design_copy(11, [7, 2], 0.01),
        design_lookup(orthonormal(4, 5), 0.01),
    ],
)
def test_checks_meet_predictions(designed) -> None:
    measured, _ = measure_worst_query(designed)
    assert measured == pytest.approx(designed.predicted, abs=1e-12)
    assert measured >= 0.99 - 1e-12


def reference_matches(symbols: list[int]) -> list[list[bool]]:
    return [
        [0 < key <= query and symbols[key - 1] == symbols[query] for key in range(len(symbols))]
        for query in range(len(symbols))
    ]


@given(st.integers(2, 13), st.integers(5, 71), tolerances, st.integers(0, 10**6))
@settings(max_examples=30)
def test_induction_is_above_its_bound(
    symbols: int, length: int, tolerance: float, seed: int
) -> None:
    plan = InductionPlan(
        basis=Sinusoids(width=38), vocabulary=symbols + 1, length=length, tolerance=tolerance
    )
    designed = design_induction(plan, seed)
    text = designed.tokens[:, : symbols + 1].argmax(dim=1)
    right = torch.tensor(reference_matches(text.tolist()))
    assert torch.equal(designed.targets, right)
    on_targets = designed.attention().masked_fill(~right, 0).sum(dim=-1)[right.any(dim=-1)]
    assert designed.predicted >= 1 - tolerance
    assert all(share >= designed.predicted - 1e-9 for share in on_targets.tolist())


def test_induction_outputs_the_next_symbol() -> None:
    plan = InductionPlan(basis=Sinusoids(width=22), vocabulary=7, length=11, tolerance=0.001)
    text = torch.tensor([0, 3, 5, 2, 6, 1, 3])
    tokens = induction_tokens(plan, text)
    output = apply_heads(induction_heads(plan), tokens) - tokens
    assert int(output[-1, :7].argmax()) == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: content_sharpness(target_keys=1, wrong_keys=-1, tolerance=0.1), "at least 1 keys"),
        (lambda: copy_head(torch.ones(2, 3, dtype=torch.float64), [0], 0.1), "not orthonormal"),
        (lambda: copy_head(orthonormal(3, 5), [3], 0.1), "expected 0 to 2"),
        (lambda: copy_head(orthonormal(3, 5), [1, 1], 0.1), "twice"),
        (
            lambda: InductionPlan(basis=Sinusoids(width=6), vocabulary=3, length=5, tolerance=0.5),
            "0.5",
        ),
        (lambda: InductionPlan(basis=Sinusoids(width=6), vocabulary=1, length=5), "got 1"),
    ],
)
def test_invalid_designs(make, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_text_without_target_keys_is_rejected() -> None:
    designed = design_induction(InductionPlan(basis=Sinusoids(width=22), vocabulary=401, length=2))
    with pytest.raises(UserError, match="no query has a target key"):
        measure_worst_query(designed)
