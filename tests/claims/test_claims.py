"""Verdicts follow from cases, and every claim has its recorded verdict."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harken.claims import formulas
from harken.claims.claim import (
    FAILS,
    HOLDS,
    HOLDS_NARROWER,
    Case,
    Claim,
    ClaimResult,
    Setting,
    compare_arrays,
    select_claims,
)
from harken.errors import UserError

SMALL = Setting(width=16, seed=3)


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ([(True, True), (False, True)], HOLDS),
        ([(True, False), (False, True)], HOLDS_NARROWER),
        ([(True, False)], FAILS),
        ([(True, True), (False, False)], FAILS),
        ([(True, False), (False, True), (False, False)], FAILS),
    ],
)
def test_verdicts(cases: list[tuple[bool, bool]], verdict: str) -> None:
    """Cases are (stated, agrees)."""
    (claim,) = select_claims(["A1"])
    results = [Case("", 0.0, 0.0 if agrees else 1.0, 0.5, stated) for stated, agrees in cases]
    assert ClaimResult(claim, tuple(results)).verdict == verdict


@given(st.integers(0, 34), st.floats(0.01, 9))
def test_compare_finds_the_largest_difference(index: int, difference: float) -> None:
    predicted = np.arange(35.0).reshape(5, 7)
    measured = torch.from_numpy(predicted.copy())
    measured.view(-1)[index] += difference
    case = compare_arrays("", predicted, measured, tolerance=0.005)
    assert case.predicted == index and case.measured == pytest.approx(index + difference)
    assert not case.agrees


def test_nan_and_different_shapes_never_agree() -> None:
    assert not compare_arrays("", np.zeros((5, 7)), torch.zeros(7, 5), tolerance=9.0).agrees
    assert not compare_arrays(
        "", np.zeros(3), torch.tensor([0.0, math.nan, 0.0]), tolerance=9.0
    ).agrees


@pytest.mark.parametrize("claim", select_claims(), ids=lambda claim: claim.id)
def test_every_verdict_is_as_recorded(claim: Claim) -> None:
    result = claim.evaluate(SMALL)
    assert result.as_expected, [case for case in result.cases if not case.agrees]
    assert (result.verdict == HOLDS_NARROWER) == any(not case.stated for case in result.cases)
    assert claim.remark or result.verdict == HOLDS


def test_claims_are_selected_by_id() -> None:
    expected = [f"A{n}" for n in range(1, 9)] + [f"B{n}" for n in range(1, 13)]
    expected += [f"C{n}" for n in (*range(1, 8), 9)]
    assert [claim.id for claim in select_claims()] == expected
    assert [claim.id for claim in select_claims(["c2", "A6"])] == ["A6", "C2"]
    with pytest.raises(UserError, match=r"'D1'.*A1"):
        select_claims(["d1"])


@pytest.mark.parametrize("width", [0, 4, 10])
def test_invalid_width(width: int) -> None:
    with pytest.raises(UserError, match=f"width {width}"):
        Setting(width=width)


def test_numpy_attention_agrees_with_pytorch() -> None:
    queries, keys, values = (torch.randn(n, w).double() for n, w in ((5, 11), (7, 11), (7, 13)))
    theirs = torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
    ours = formulas.numpy_attention(queries.numpy(), keys.numpy(), 11**-0.5) @ values.numpy()
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-12)


def test_normal_cdf() -> None:
    theirs = float(torch.special.ndtr(torch.tensor(-math.sqrt(2), dtype=torch.float64)))
    assert formulas.normal_cdf(-math.sqrt(2)) == pytest.approx(theirs, abs=1e-15)
    assert theirs == pytest.approx(0.0786, abs=1e-4)
