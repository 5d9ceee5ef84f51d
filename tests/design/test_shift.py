"""A shift meets its tolerance at every position, and a rejected plan cannot."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harken.attention.sinusoids import Sinusoids
from harken.design.designs import design_shift, measure_worst_query
from harken.design.head import head_attention, shared_subspaces
from harken.design.shift import (
    ShiftPlan,
    choose_sharpness,
    largest_length,
    max_sharpness,
    required_sharpness,
    rotation_head,
    shift_head,
    solve_shift,
)
from harken.errors import UserError


@st.composite
def plans(draw: st.DrawFn) -> ShiftPlan:
    length = draw(st.integers(2, 131))
    mask_kind = draw(st.sampled_from(["causal", "strictly_causal", "bidirectional"]))
    pairs = draw(st.integers(1, 19))
    fourier = draw(st.booleans())
    basis = Sinusoids(width=2 * pairs)
    if fourier:
        basis = Sinusoids(kind="fourier", width=2 * pairs, span=length + draw(st.integers(0, 61)))
    return ShiftPlan(
        basis=basis,
        offset=draw(st.integers(1 if mask_kind == "strictly_causal" else 0, length - 1)),
        length=length,
        tolerance=draw(st.sampled_from([0.2, 0.01, 1e-4])),
        key_width=draw(st.one_of(st.none(), st.integers(2, 2 * pairs + 3))),
        mask_kind=mask_kind,
    )


def reference_attention(plan: ShiftPlan, sharpness: float, pairs: tuple[int, ...]) -> float:
    """Return the attention of the worst query by the formula of softmax."""
    head = rotation_head(
        plan.basis, plan.offset, pairs, sharpness, shared_subspaces(plan.basis.width)
    )
    vectors = plan.basis.vectors(plan.length)
    worst = 1.0
    for query in range(plan.offset, plan.length):
        visible = {"causal": query + 1, "strictly_causal": query, "bidirectional": plan.length}[
            plan.mask_kind
        ]
        scores = (vectors[:visible] @ head.keys.T) @ (head.queries @ vectors[query])
        right = query - plan.offset
        worst = min(worst, 1 / float((scores - scores[right]).exp().sum()))
    return worst


@given(plans())
@settings(max_examples=120)
def test_solved_plans_meet_the_tolerance_and_rejected_ones_cannot(plan: ShiftPlan) -> None:
    try:
        solution = solve_shift(plan)
    except UserError as error:
        sharpness = max_sharpness(float(plan.pair_count), plan.precision)
        # As sharp as the precision allows, and still some query misses the tolerance.
        pairs = choose_sharpness(plan).pairs
        assert reference_attention(plan, sharpness, pairs) < 1 - plan.tolerance
        reach = largest_length(plan, max_length=plan.length)
        assert reach is None or reach < plan.length
        assert (f"texts of at most {reach}" if reach else "no text") in str(error)
        return
    assert len(solution.pairs) == plan.pair_count
    measured = reference_attention(plan, solution.sharpness, solution.pairs)
    assert measured >= 1 - plan.tolerance - 1e-9
    assert measured == pytest.approx(solution.predicted, abs=1e-9)


@given(plans())
@settings(max_examples=60)
def test_largest_attention_is_at_the_offset(plan: ShiftPlan) -> None:
    assume(choose_sharpness(plan).is_feasible)
    weights = head_attention(shift_head(plan), plan.basis.vectors(plan.length), plan.mask_kind)
    queries = torch.arange(plan.offset, plan.length)
    assert weights[plan.offset :].argmax(dim=-1).tolist() == (queries - plan.offset).tolist()


def test_transposed_matrix_attends_ahead() -> None:
    """A is key-first; used query-first, it shifts by minus the offset."""
    plan = ShiftPlan(basis=Sinusoids(width=38), offset=5, length=41, mask_kind="bidirectional")
    head = shift_head(plan)
    swapped = replace(head, queries=head.keys, keys=head.queries)
    weights = head_attention(swapped, plan.basis.vectors(41), "bidirectional")
    assert weights[:36].argmax(dim=-1).tolist() == list(range(5, 41))


def test_check_meets_the_prediction_at_every_length() -> None:
    plan = ShiftPlan(basis=Sinusoids(width=26), offset=3, length=89, key_width=10)
    for length in (4, 17, 89):
        designed = design_shift(replace(plan, length=length))
        measured, query = measure_worst_query(designed)
        assert measured == pytest.approx(designed.predicted, abs=1e-9)
        assert measured >= 0.99 and query >= 3


def test_largest_length_is_feasible_and_the_next_is_not() -> None:
    plan = ShiftPlan(basis=Sinusoids(width=64), offset=3, length=17, key_width=2)
    reach = largest_length(plan)
    assert reach is not None
    assert choose_sharpness(replace(plan, length=reach)).is_feasible
    assert not choose_sharpness(replace(plan, length=reach + 1)).is_feasible
    with pytest.raises(UserError, match=f"texts of at most {reach}"):
        solve_shift(replace(plan, length=reach + 29))


def test_more_precision_allows_longer_texts() -> None:
    plan = ShiftPlan(basis=Sinusoids(width=64), offset=3, length=5, key_width=2)
    lengths = [
        largest_length(replace(plan, precision=precision)) or 0
        for precision in (torch.bfloat16, torch.float32, torch.float64)
    ]
    assert lengths == sorted(set(lengths))


def test_sharpness_by_hand() -> None:
    """Epsilon of float32 is 2^-23, and 7 pairs score at most 7."""
    assert max_sharpness(7.0, torch.float32) == pytest.approx(math.log(2) * 2**23 / 7)
    sharpness = required_sharpness(wrong_keys=9, gap=0.5, tolerance=0.1)
    assert sharpness == pytest.approx(2 * math.log(81))


def test_a_fourier_basis_is_limited_by_its_span() -> None:
    basis = Sinusoids(kind="fourier", width=22, span=47)
    plan = ShiftPlan(basis=basis, offset=2, length=47)
    assert largest_length(plan) == 47
    with pytest.raises(UserError, match="ambiguous"):
        solve_shift(replace(plan, length=48))
    # After two spans every sinusoid repeats: no sharpness distinguishes the two keys.
    assert reference_attention(replace(plan, length=103), 1e4, tuple(range(11))) < 0.51


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"offset": 13}, "expected 0 to 12"),
        ({"offset": 0, "mask_kind": "strictly_causal"}, "expected 1 to 12"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"key_width": 1}, "a sine and a cosine"),
    ],
)
def test_invalid_plans(invalid: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ShiftPlan(**{"basis": Sinusoids(width=6), "offset": 1, "length": 13} | invalid)
