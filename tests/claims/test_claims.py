"""Verdicts follow from cases; every claim runs, and has the verdict that is recorded."""

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
    NARROWER,
    Case,
    Claim,
    Judged,
    Setting,
    judge,
    worst,
)
from harken.claims.laboratory import ALL, chosen
from harken.errors import UserError

SMALL = Setting(width=16, seed=3)


def judged(*cases: tuple[bool, bool]) -> str:
    """The verdict of cases that are (stated, agreeing)."""
    made = tuple(
        Case(
            what="",
            predicted=0.0,
            measured=0.0 if agrees else 1.0,
            tolerance=0.5,
            stated=stated,
        )
        for stated, agrees in cases
    )
    claim = Claim(
        id="A1", source="", statement="", formula="", assumption="", check=lambda setting: made
    )
    return judge(claim, SMALL).verdict


def test_verdicts() -> None:
    assert judged((True, True), (False, True)) == HOLDS
    assert judged((True, False), (False, True)) == NARROWER
    assert judged((True, False)) == FAILS
    assert judged((True, True), (False, False)) == FAILS
    assert judged((True, False), (False, True), (False, False)) == FAILS


def test_nan_never_agrees() -> None:
    assert not Case(what="", predicted=0.0, measured=math.nan, tolerance=math.inf).agrees


@given(st.integers(0, 34), st.floats(0.01, 9))
def test_worst_finds_the_one_that_differs(at: int, by: float) -> None:
    predicted = np.arange(35.0).reshape(5, 7)
    measured = torch.from_numpy(predicted.copy())
    measured.view(-1)[at] += by
    found = worst("", predicted, measured, tolerance=0.005)
    assert found.predicted == at and found.measured == pytest.approx(at + by)
    assert not found.agrees


def test_worst_of_two_shapes_never_agrees() -> None:
    assert not worst("", np.zeros((5, 7)), torch.zeros(7, 5), tolerance=9.0).agrees
    assert not worst("", np.zeros(3), torch.tensor([0.0, math.nan, 0.0]), tolerance=9.0).agrees


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.id)
def test_every_verdict_is_as_recorded(claim: Claim) -> None:
    found: Judged = judge(claim, SMALL)
    assert found.as_expected, [case for case in found.cases if not case.agrees]
    assert (found.verdict == NARROWER) == any(not case.stated for case in found.cases)
    assert claim.remark or found.verdict == HOLDS


def test_every_statement_with_a_formula_is_there() -> None:
    wanted = [f"A{n}" for n in range(1, 9)] + [f"B{n}" for n in range(1, 13)]
    wanted += [f"C{n}" for n in (*range(1, 8), 9)]
    assert [claim.id for claim in ALL] == wanted


def test_claims_are_chosen_by_name() -> None:
    assert [claim.id for claim in chosen(["c2", "A6"])] == ["A6", "C2"]
    with pytest.raises(UserError, match=r"'D1'.*A1"):
        chosen(["d1"])


@pytest.mark.parametrize("width", [0, 4, 10])
def test_a_width_without_whole_pairs_is_refused(width: int) -> None:
    with pytest.raises(UserError, match=f"width {width}"):
        Setting(width=width)


def test_the_plain_attention_agrees_with_pytorch() -> None:
    queries, keys, values = (torch.randn(n, w).double() for n, w in ((5, 11), (7, 11), (7, 13)))
    theirs = torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
    ours = formulas.attention(queries.numpy(), keys.numpy(), 11**-0.5) @ values.numpy()
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-12)


def test_below_is_the_normal_distribution() -> None:
    theirs = float(torch.special.ndtr(torch.tensor(-math.sqrt(2), dtype=torch.float64)))
    assert formulas.below(-math.sqrt(2)) == pytest.approx(theirs, abs=1e-15)
    assert theirs == pytest.approx(0.0786, abs=1e-4)
