"""A shift keeps its promise at every position, and a refusal is honest."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harken.attention.relative import PositionSizes, RotaryConfig
from harken.design.designs import check, designed_shift
from harken.design.head import attention
from harken.design.sharpness import max_sharpness, required_sharpness
from harken.design.shift import (
    ShiftPlan,
    is_feasible,
    largest_length,
    rotary_shift,
    rotation_head,
    sharpen,
    shift,
    solve,
)
from harken.design.subspaces import concatenated_subspaces, shared_subspaces
from harken.design.waves import Waves, wave_vectors
from harken.errors import UserError


@st.composite
def plans(draw: st.DrawFn) -> ShiftPlan:
    length = draw(st.integers(2, 131))
    order = draw(st.sampled_from(["causal", "strictly_causal", "bidirectional"]))
    pairs = draw(st.integers(1, 19))
    fourier = draw(st.booleans())
    waves = Waves(width=2 * pairs)
    if fourier:
        waves = Waves(kind="fourier", width=2 * pairs, span=length + draw(st.integers(0, 61)))
    return ShiftPlan(
        waves=waves,
        offset=draw(st.integers(1 if order == "strictly_causal" else 0, length - 1)),
        length=length,
        tolerance=draw(st.sampled_from([0.2, 0.01, 1e-4])),
        key_width=draw(st.one_of(st.none(), st.integers(2, 2 * pairs + 3))),
        order=order,
    )


def slow_attention(plan: ShiftPlan, sharpness: float, pairs: tuple[int, ...]) -> float:
    """The worst query, by the vectors and the formula of softmax, one key after the other."""
    head = rotation_head(
        plan.waves, plan.offset, pairs, sharpness, shared_subspaces(plan.waves.width)
    )
    places = wave_vectors(plan.waves, plan.length)
    worst = 1.0
    for query in range(plan.offset, plan.length):
        seen = {"causal": query + 1, "strictly_causal": query, "bidirectional": plan.length}[
            plan.order
        ]
        scores = (places[:seen] @ head.keys.T) @ (head.queries @ places[query])
        right = query - plan.offset
        worst = min(worst, 1 / float((scores - scores[right]).exp().sum()))
    return worst


@given(plans())
@settings(max_examples=120)
def test_kept_where_promised_and_broken_where_refused(plan: ShiftPlan) -> None:
    try:
        solution = solve(plan)
    except UserError as refusal:
        most = max_sharpness(float(plan.pair_count), plan.precision)
        # As sharp as the precision allows, and still some query misses the tolerance.
        assert slow_attention(plan, most, sharpen(plan).pairs) < 1 - plan.tolerance
        reach = largest_length(plan, most=plan.length)
        assert reach is None or reach < plan.length
        assert (f"texts of {reach} at most" if reach else "no text") in str(refusal)
        return
    assert len(solution.pairs) == plan.pair_count
    measured = slow_attention(plan, solution.sharpness, solution.pairs)
    assert measured >= 1 - plan.tolerance - 1e-9
    assert measured == pytest.approx(solution.predicted, abs=1e-9)


@given(plans())
@settings(max_examples=60)
def test_the_most_attended_key_is_the_one_asked_for(plan: ShiftPlan) -> None:
    assume(is_feasible(plan))
    weights = attention(shift(plan), wave_vectors(plan.waves, plan.length), plan.order)
    queries = torch.arange(plan.offset, plan.length)
    assert weights[plan.offset :].argmax(dim=-1).tolist() == (queries - plan.offset).tolist()


def test_the_other_transposition_looks_ahead() -> None:
    """A is key first: read as query first, it is a shift by minus the offset."""
    plan = ShiftPlan(waves=Waves(width=38), offset=5, length=41, order="bidirectional")
    head = shift(plan)
    swapped = replace(head, queries=head.keys, keys=head.queries)
    weights = attention(swapped, wave_vectors(plan.waves, 41), "bidirectional")
    assert weights[:36].argmax(dim=-1).tolist() == list(range(5, 41))


def test_check_meets_the_prediction_at_every_length() -> None:
    plan = ShiftPlan(waves=Waves(width=26), offset=3, length=89, key_width=10)
    designed = designed_shift(plan)
    for result in check(designed, [4, 17, 89]):
        assert result.measured == pytest.approx(result.predicted, abs=1e-9)
        assert result.measured >= 0.99
        assert result.query >= 3


def test_the_largest_length_is_kept_and_the_next_is_not() -> None:
    plan = ShiftPlan(waves=Waves(width=64), offset=3, length=17, key_width=2)
    reach = largest_length(plan)
    assert reach is not None
    assert is_feasible(replace(plan, length=reach))
    assert not is_feasible(replace(plan, length=reach + 1))
    with pytest.raises(UserError, match=f"texts of {reach} at most"):
        solve(replace(plan, length=reach + 29))


def test_more_precision_allows_longer_texts() -> None:
    plan = ShiftPlan(waves=Waves(width=64), offset=3, length=5, key_width=2)
    lengths = [
        largest_length(replace(plan, precision=precision)) or 0
        for precision in (torch.bfloat16, torch.float32, torch.float64)
    ]
    assert lengths == sorted(set(lengths))


def test_the_limit_is_where_rounding_doubles_what_is_wrong() -> None:
    """By hand: epsilon of float32 is 2^-23, and 7 pairs score 7 at most."""
    assert max_sharpness(7.0, torch.float32) == pytest.approx(math.log(2) * 2**23 / 7)
    assert required_sharpness(9, 0.5, 0.1) == pytest.approx(2 * math.log(81))


def test_fourier_waves_end_with_their_span() -> None:
    waves = Waves(kind="fourier", width=22, span=47)
    plan = ShiftPlan(waves=waves, offset=2, length=47)
    assert largest_length(plan) == 47
    with pytest.raises(UserError, match="ambiguous"):
        solve(replace(plan, length=48))
    # After two spans every wave is where it was: no sharpness can tell the two keys apart.
    assert slow_attention(replace(plan, length=103), 1e4, tuple(range(11))) < 0.51


def test_content_is_carried_into_the_scratch() -> None:
    plan = ShiftPlan(waves=Waves(width=22), offset=2, length=13, tolerance=1e-5)
    subspaces = concatenated_subspaces(content=5, position=22, scratch=5)
    head = shift(plan, subspaces)
    tokens = torch.zeros(13, 32, dtype=torch.float64)
    tokens[:, :5] = torch.randn(13, 5, dtype=torch.float64)
    tokens[:, 5:27] = wave_vectors(plan.waves, 13)
    assert head.values is not None and head.output is not None
    carried = attention(head, tokens) @ (tokens @ head.values.T) @ head.output.T
    assert not carried[:, :27].any()
    torch.testing.assert_close(carried[2:, 27:], tokens[:-2, :5], rtol=0, atol=1e-4)


@given(st.integers(0, 7), st.integers(2, 9))
@settings(max_examples=30)
def test_rotary_is_turned_by_the_layer(offset: int, pairs: int) -> None:
    plan = ShiftPlan(waves=Waves(width=2 * pairs), offset=offset, length=31)
    head = rotary_shift(plan, width=7)
    rotary = RotaryConfig().build(PositionSizes(width=7, key_width=2 * pairs, heads=1, length=31))
    rotation = rotary.rotation(torch.arange(31)[None, :, None])
    tokens = torch.randn(31, 7, dtype=torch.float64)
    weights = attention(head, tokens, "causal", rotation)
    assert float(weights.diagonal(-offset).min()) >= 0.99 - 1e-4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"offset": 13}, "expected 0 to 12"),
        ({"offset": 0, "order": "strictly_causal"}, "expected 1 to 12"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"key_width": 1}, "pair of waves"),
    ],
)
def test_what_cannot_be_asked_for(wrong: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ShiftPlan(**{"waves": Waves(width=6), "offset": 1, "length": 13} | wrong)
